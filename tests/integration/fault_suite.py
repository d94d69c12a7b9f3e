"""A suite over tests/faults/matrix as a user starts it, on a CPU or a GPU: what it must come to, and what it left."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

from small_tree import ROOT, started_with

from common.python.base.results import Interval, PairResult, Summary
from common.python.corpus.targets import pair_name
from common.python.stats.intervals import compare

MATRIX = ROOT / "tests" / "faults" / "matrix"
HEALTHY = ("ch01:healthy", "ch04:healthy_last")  # among the faults of a CPU, and after all others
LEFT = r"left {} \(.*{}\) changed: put it back, or declare isolated=True"

BASELINE = '''"""Each element is doubled."""
from dataclasses import replace
from ch01.problem import prepare as prepare
from ch01.problem import workload as workload
{baseline}
'''
VARIANT = '''"""Each element is doubled, beside what makes it a fault."""
import ctypes, functools, os, random, resource, signal, subprocess, sys, threading, time
from pathlib import Path
import torch
from {chapter}.baseline_{name} import workload as workload
{module}

def prepare(a):
{prepare}

    def step():
{step}
        return {answer}

    return step
'''
CALLER = '''"""{sentence}"""
from {chapter}.baseline_{name} import workload as workload
from common.python.cuda import load_cuda

def prepare(a):
    kernel, out = load_cuda(__file__, "{function}"), a.new_empty(a.shape)

    def step():
        kernel(a, out, a.shape[0])
        return out

    return step
'''


@dataclass(frozen=True)
class Fault:
    """What a variant does besides doubling, and what its row must say; where no reason is given, it harms nobody."""

    reason: str = ""  # a regular expression
    hint: str | None = None  # a piece of it; without one there is none
    module: str = ""
    prepare: str = ""
    step: str = ""
    answer: str = "a * 2"
    baseline: str = ""  # what its baseline says further
    at: str | None = None  # the part, or the text, in which the line stands that the reason names

    @property
    def line(self) -> str | None:
        return self.at and "|".join(line.strip() for line in getattr(self, self.at, self.at).splitlines())

    def source(self, chapter: str, name: str) -> str:
        prepare, step = indent(self.prepare, " " * 4), indent(self.step, " " * 8)
        return VARIANT.format(
            chapter=chapter, name=name, module=self.module, prepare=prepare, step=step, answer=self.answer
        )


SOUND = Fault(  # no fault: the same work over and over, and in the baseline twice as often
    baseline="from functools import partial\nfrom ch01.problem import repeated\nprepare = partial(repeated, 200)",
    prepare="out = torch.empty_like(a)",
    step="for _ in range(100):\n    torch.add(a, a, out=out)",
    answer="out",
)


@dataclass(frozen=True)
class Done:
    """A run of the pairs in `root` that has ended: how, with what, after how long, and what it left."""

    root: Path
    code: int
    output: str
    seconds: float
    summary: Summary
    folder: Path
    processes: list[str]
    temporary: list[str]

    def result(self, key: str) -> PairResult:
        return next(pair for pair in self.summary.pairs if pair.key == key)

    def speedup(self, key: str) -> Interval:
        """From the samples, whatever the verdict."""
        name = key.partition(":")[2]
        file = self.folder / key.replace(":", "_") / "results" / "benchmark_test_results.json"
        written = PairResult.model_validate_json(file.read_text())
        found = compare(written.blocks, f"baseline_{name}", f"optimized_{name}", written.clock or "device")
        assert found is not None, key
        return found


def copied(folder: Path, chapter: str, faults: Mapping[str, Fault]) -> Path:
    """A copy of the matrix to run, since one pair deletes its source, with these faults in a chapter of it."""
    root = with_callers(MATRIX, folder / "root")
    kernels = {f"{chapter}:{pair_name(path.stem)}": Fault() for path in (root / chapter).glob("*.cu")}
    pairs = kernels | {f"{chapter}:{name}": fault for name, fault in faults.items()} | dict.fromkeys(HEALTHY, SOUND)
    for key, fault in pairs.items():
        place, name = root / key.split(":")[0], key.split(":")[1]
        (place / f"baseline_{name}.py").write_text(BASELINE.format(baseline=fault.baseline))
        if key not in kernels:
            (place / f"optimized_{name}.py").write_text(fault.source(place.name, name))
    return root


def with_callers(tree: Path, root: Path) -> Path:
    """A copy of the tree in which each .cu file has the variant that calls its function."""
    shutil.copytree(tree, root)
    for source in root.glob("ch*/*.cu"):
        text, chapter, name = source.read_text(), source.parent.name, pair_name(source.stem)
        sentence, [function] = text.splitlines()[0].lstrip("/ "), re.findall(r'extern "C" int (\w+)', text)
        caller = CALLER.format(sentence=sentence, chapter=chapter, name=name, function=function)
        source.with_suffix(".py").write_text(caller)
    return root


def artifacts_of(root: Path, name: str) -> Path:
    return root.parent / f"{name}-artifacts"


def run(root: Path, name: str, *words: str) -> Done:
    """`benchmark_cli run` with these words, its artifacts and temporary files beside `root`, under this name."""
    temporary, artifacts = root.parent / f"{name}-temp", artifacts_of(root, name)
    temporary.mkdir()
    marker = f"FAULT_MATRIX={root.parent}/{name}"
    started = time.monotonic()
    command = [sys.executable, "-m", "tools.cli.benchmark_cli", "run", *words, "--root", str(root), "--seed", "0"]
    command += ["--artifacts-dir", str(artifacts), "--junit", str(root.parent / f"{name}.xml")]
    env = os.environ | {"TMPDIR": str(temporary), "FAULT_MATRIX": marker.partition("=")[2]}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=1800)
    seconds = time.monotonic() - started
    [folder] = artifacts.glob("*Z")
    summary = Summary.model_validate_json((folder / "summary.json").read_text())
    # Torch's cache of compiled code, and the harness's lock files, which are reused: a lock ends with who holds it.
    kept = ("torchinductor_", "benchmark_cli_locks")
    left = [path.name for path in temporary.iterdir() if not path.name.startswith(kept)]
    processes = list(started_with(marker).values())
    return Done(root, done.returncode, done.stdout + done.stderr, seconds, summary, folder, processes, left)


def check_fault(done: Done, key: str, reason: str, line: str | None, hint: str | None) -> None:
    """One row that says why, names the file, and the place in it if there is a `line` with these words, and hints."""
    result = done.result(key)
    told = result.reason or ""
    assert result.status == "failed" or result.verdict == "invalid", result.status
    assert re.search(reason, told), told
    assert "\n" not in told, told
    row = next(row for row in result.variants if row.label == "optimized")
    assert (row.file, row.status, row.speedup) == (f"{result.chapter}/optimized_{result.name}.py", "failed", None)
    place = re.search(r"(\w+\.(?:py|cu)):(\d+)", told)
    assert (place is None) == (line is None), told
    if place and line:
        found = (done.root / result.chapter / place[1]).read_text().splitlines()[int(place[2]) - 1]
        assert line in found or found.strip() in line.split("|"), told
    assert (result.hint is None) == (hint is None), result.hint
    assert (hint or "") in (result.hint or ""), result.hint


def check_codes(matrix: Done, alone: Done) -> None:
    assert matrix.code == 1, matrix.output
    assert alone.code == 0, alone.output
    assert "Traceback" not in matrix.output, matrix.output
    assert matrix.summary.complete, matrix.summary.not_run


def check_undisturbed(matrix: Done, alone: Done, key: str, noise: float) -> None:
    """Beside the faults a pair has the speedup that it has without them, within `noise` beyond an interval."""
    ours, undisturbed = (done.speedup(key) for done in (matrix, alone))
    turns = (ours, undisturbed), (undisturbed, ours)  # a busy machine can widen the interval of either
    held = any(one.low / noise <= other.ratio <= one.high * noise for one, other in turns)
    assert held, (ours, undisturbed)
    result = matrix.result(key)
    assert (result.status, [row.status for row in result.variants]) == ("measured", ["measured"] * 2), result.reason
    assert result.verdict in ("faster", "inconclusive", "too noisy"), result.verdict  # few rounds may not tell
