"""Trees of pairs so small that a step takes microseconds: what the tests write, run and read back."""

import contextlib
import io
import json
import multiprocessing.forkserver
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest
from synthetic_run import ROOT as ROOT

from common.python.base.reaper import children
from common.python.base.results import PairResult, Summary, VariantResult
from common.python.run.options import Options
from common.python.run.suite import Say, Show, Suite, aloud, open_suite
from common.python.workers.process import Worker
from tools.cli.benchmark_cli import main
from tools.cli.exits import alone, ended

Done = subprocess.CompletedProcess[str]
Hire = Callable[..., Worker]
LIMIT_S = 60.0  # of a worker's answer

HONEST = """
    def prepare(a):
        def step():
            return a * 2

        return step
"""
NOTE_PROCESS = """
    import os
    from pathlib import Path

    def prepare(a):
        with Path({file!r}).open("a") as file:
            file.write(f"{{os.getpid()}}\\n")

        def step():
            return a * 2

        return step
"""
WRONG = HONEST.replace("a * 2", "a * 2.01")
BASELINE = '''"""Doubles every element."""
import torch
from common.python.workload import Cost, Workload

workload = Workload(
    inputs=lambda draw, n: {inputs},
    reference={reference},
    cost={cost},
    sizes={sizes},
    tolerance={tolerance},
    {fields}
)
'''
SIZES = '{"bench": {"n": 8192}, "cpu": {"n": 4096}, "test": {"n": 67}}'


# A loop in C that holds the GIL: neither a Python signal handler nor a thread of its process runs again. The last word
# that could be heard, SIGTERM, is blocked.
SPINS = """
import ctypes, signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
library, lock = ctypes.PyDLL(None), ctypes.byref(ctypes.c_int(0))
library.pthread_spin_init(lock, 0)
library.pthread_spin_lock(lock)
library.pthread_spin_lock(lock)
"""


@dataclass
class Tree:
    """A root with chapters; `run` runs a suite over it and remembers where its artifacts are."""

    root: Path
    folder: Path = field(init=False)

    def pair(self, key: str, baseline: str = HONEST, fields: str = "", **rungs: str) -> None:
        """Write `ch01:name`: the body of `prepare` for its baseline and for each rung, by the end of its file name.

        `optimized` is the headline rung, `padded` becomes optimized_name__padded. `fields` are further arguments of
        Workload; `inputs=`, `reference=`, `cost=`, `sizes=` or `tolerance=` among the rungs replace the workload's.
        """
        problem = {
            "inputs": '{"a": draw.normal(n)}',
            "reference": "lambda a: a * 2",
            "cost": "lambda n: Cost(host_bytes=8 * n)",
            "sizes": SIZES,
            "tolerance": "1e-6",
        }
        problem |= {name: rungs.pop(name) for name in list(problem) if name in rungs}
        chapter, name = key.split(":")
        head = BASELINE
        for field_name, text in {**problem, "fields": fields}.items():
            head = head.replace(f"{{{field_name}}}", text)
        self.file(chapter, f"baseline_{name}", head + dedent(baseline))
        for rung, body in (rungs or {"optimized": HONEST}).items():
            stem = f"optimized_{name}" + ("" if rung == "optimized" else f"__{rung}")
            self.file(chapter, stem, self.opening(chapter, name, rung) + dedent(body))

    @staticmethod
    def opening(chapter: str, name: str, rung: str) -> str:
        imports = f"import torch\nfrom {chapter}.baseline_{name} import workload as workload\n"
        return f'"""Doubles every element, {rung}."""\n{imports}'

    def file(self, chapter: str, stem: str, text: str) -> Path:
        folder = self.root / chapter
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").touch()
        path = folder / f"{stem}.py"
        path.write_text(text)
        return path

    def open(self, *targets: str, show: Show = lambda phase, result: None, say: Say = aloud, **options: Any) -> Suite:
        """One pair after the other, on whatever machine, unless told otherwise."""
        asked = {"iterations": 6, "warmup": 0, "seed": 7, "jobs": 1, **options}
        options = Options(targets=list(targets), root=self.root, artifacts_dir=self.artifacts, **asked)
        suite = open_suite(options, show, say)
        self.folder = suite.folder
        return suite

    def run(self, *targets: str, **options: Any) -> Summary:
        return self.open(*targets, **options).run()

    @property
    def artifacts(self) -> Path:
        return self.root / "artifacts"

    def journal(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in (self.folder / "journal.jsonl").read_text().splitlines()]

    def result(self, key: str) -> PairResult:
        """What the last run wrote for a pair, with its blocks."""
        folder = next(line["folder"] for line in self.journal() if line["pair"] == key)
        return PairResult.model_validate_json(
            (self.folder / folder / "results" / "benchmark_test_results.json").read_text()
        )


def row(result: PairResult, stem: str) -> VariantResult:
    return next(variant for variant in result.variants if variant.name == stem)


def load(worker: Worker) -> dict[str, Any]:
    modules = {"baseline_x": "ch01.baseline_x", "optimized_x": "ch01.optimized_x"}
    answer: dict[str, Any] = worker.call("load", LIMIT_S, baseline="ch01.baseline_x", modules=modules, size="cpu")
    return answer


def prepare(worker: Worker, limit_s: float = LIMIT_S) -> dict[str, Any]:
    """Prepare the rung; its step is called once."""
    answer: dict[str, Any] = worker.call("prepare", limit_s, names=["optimized_x"], size="test")
    return answer


def late_s() -> float:
    """How late an end may come: two seconds, more where others keep every core of the machine busy.

    By who is at work now as well as by the mean load, which is a minute behind.
    """
    load, _, _, running, _ = Path("/proc/loadavg").read_text().split()
    return 2.0 * max(1.0, max(float(load), float(running.split("/")[0])) / len(os.sched_getaffinity(0)))


def until(what: Callable[[], object], within_s: float = 180.0) -> None:
    deadline = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie, which only waits to be reaped."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def started_with(variable: str) -> dict[int, str]:
    """The other living processes with this NAME=value in the environment that they began with, and their commands."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if int(place.name) != os.getpid() and variable.encode() in (place / "environ").read_bytes().split(b"\0"):
                found[int(place.name)] = (place / "cmdline").read_text().replace("\0", " ")
    return found


def nothing_left() -> bool:
    """Whether the forkserver, the parent of every worker's reaper, has no child any more."""
    return children(multiprocessing.forkserver._forkserver._forkserver_pid) == []  # type: ignore[attr-defined]


def cli(*words: str | Path, tool: Any = None) -> Done:
    """The command in this process, which is as the user starts it but for the start; or a tool of one command."""
    out, err, command = io.StringIO(), io.StringIO(), main
    if tool is not None:
        command = partial(ended, alone(tool), tool.__globals__["PROGRAM"])
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as end:
        command(list(map(str, words)))
    return Done(list(words), int(end.value.code or 0), out.getvalue(), err.getvalue())


def assert_usage(done: Done, *words: str) -> None:
    """Exit code 2 and one line that says what would be right."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("benchmark_cli: ")
    assert done.stderr.count("\n") == 1, done.stderr
    for word in words:
        assert word in done.stderr


def doing(action: str) -> str:
    """The body of a `prepare` whose step does something else before it returns the right answer."""
    return HONEST.replace(
        "            return a * 2", indent(dedent(action).strip(), " " * 12) + "\n            return a * 2"
    )
