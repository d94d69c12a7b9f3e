"""A run's folder as a GPU would leave it, made by hand: every verdict, rungs, peers, telemetry and hostile names.

And what it is made of and tests of parts ask for: a machine, the survey of its peaks, files.
"""

import subprocess
from collections.abc import Mapping, Sequence
from hashlib import sha256
from math import exp
from pathlib import Path
from typing import Any

from numpy.random import Generator

from common.python.base.machine import Gpu, Machine
from common.python.base.results import (
    CONTROL,
    Block,
    Cost,
    Manifest,
    PairResult,
    Proof,
    Sample,
    Summary,
    Telemetry,
    VariantResult,
    Why,
)
from common.python.peaks.store import Peak, Survey, peaks_of, versions
from common.python.stats.verdict import judge

ROOT = Path(__file__).resolve().parents[2]
README = "# Chapter\n\n<!-- results:begin -->\nold\n<!-- results:end -->\n"
STARTED = "2026-01-02T03:04:05+00:00"


def written(root: Path, files: Mapping[str, str]) -> Path:
    """A folder with these files, by their paths in it."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def program(path: Path, text: str) -> Path:
    """One that is this text, in place of a real one of its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def chapter(root: Path) -> Path:
    """Chapter 7, with a README that has a place for its results."""
    return written(root / "ch07", {"README.md": README})


def git(root: Path, *words: str) -> str:
    """What git says there; whatever this machine's settings are, it commits."""
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", "-C", root, *who, *words], check=True, capture_output=True, text=True).stdout.strip()


def host(*gpus: Gpu, **facts: Any) -> Machine:
    """Eight cores and 64 GiB, with these GPUs and their driver."""
    known = {"driver": "580.1", "cuda_driver": "13.0", **facts}
    return Machine("host", "Linux", "cpu", known.pop("cores", 8), 64.0, list(gpus), **known)


def peak(name: str, value: float, unit: str = "B/s", **facts: Any) -> Peak:
    known = {"low": value, "high": value, "fastest": value, **facts}
    return Peak.model_validate({"name": name, "unit": unit, "value": value, **known})


def survey(*peaks: Peak, **facts: Any) -> Survey:
    """An H200's, of the first day of 2026, by the libraries that are here."""
    when, here = "2026-01-01T03:04:05+00:00", versions("580.1", "13.0")
    known = {"device": "NVIDIA H200", "uuid": "GPU-1", "measured": when, "seconds": 30.0, "versions": here}
    return Survey.model_validate({**known, "peaks": list(peaks), **facts})


SURVEY = survey(peak("hbm_copy", 4e12), peak("fp32", 50e12, "FLOP/s"), versions={})
PEAKS = peaks_of(SURVEY)
COST = Cost(read=80e6, flops=160e6)  # 20 us by these peaks
HOSTILE = (
    "<script>document.title='owned'</script>\"'&amp; </pre></text></svg><img src=x onerror=alert(1)> | `x` $x^2$ "
    "\\frac{ \x00\x1b[31m \u202e ]]> --> javascript:alert(1) <style>*{display:none}</style>"
)
HOSTILE_NAME = HOSTILE.replace("\x00", "")  # which no folder can be called
WOBBLE = (1.0, 1.002, 0.999, 1.001, 0.998, 1.0005, 0.9995, 1.0015)
SOURCES = {
    "baseline_copy.py": '"""Element by element."""\n\nshared = 1\n\ndef prepare():\n    return None  # < & >\n',
    "baseline_copy.cu": "// One thread an element.\nslow<<<1, 1>>>();\n",
    "optimized_copy.py": '"""Row by row."""\n\nshared = 1\n\ndef prepare():\n    return fast\n',
    "optimized_copy.cu": "// Four elements a thread.\nfast<<<1, 1>>>();\n",
}


def variant(name: str, **facts: Any) -> VariantResult:
    role, rest = name.split("_", 1)
    label = rest.split("__", 1)[1] if "__" in rest else role
    known: dict[str, Any] = {
        "name": name,
        "role": role,
        "label": label,
        "file": f"ch07/{name}.py",
        "sentence": f"What {label} does.",
        "kinds": ["CUDA"],
        "status": "proven",
        "proofs": [Proof(size="test", when="before timing", error=3e-7)],
        "why": Why(
            metrics={"first token p50 ms": 8.25},
            kernels=4 if role == "baseline" else 1,
            peak_bytes=3e9 if role == "baseline" else 1e9,
            top=["k<int>"],
        ),
    }
    return VariantResult.model_validate(known | facts)


def blocks(us: Mapping[str, float], rounds: int = 4, a_round: int = 3) -> list[Block]:
    """Mirrored blocks of device samples, each variant's with a deterministic wobble of 0.2%."""
    made = []
    for index in range(rounds):
        for turn in range(a_round):
            order = [*us, *reversed(us)]
            samples = [
                Sample(
                    variant=name,
                    device_us=us[name] * WOBBLE[(index + 3 * turn + 5 * place) % 8] * WOBBLE[(turn + len(name)) % 8],
                    wall_us=None,
                    host_us=5.0,
                )
                for place, name in enumerate(order)
            ]
            state = Telemetry(sm_mhz=1980, memory_mhz=3201, power_w=640, temperature_c=55)
            made.append(Block(round=index, steps=1, samples=samples, telemetry=state))
    return made


def noisy_blocks(
    random: Generator, us: Mapping[str, float], noise: float = 0.002, placed: float = 0.002
) -> list[Block]:
    """Eight rounds of two mirrored blocks, as a GPU gives them.

    Relative standard deviations: `noise` from sample to sample, `placed` from where a round's buffers land.
    """
    made = []
    for index in range(8):
        here = {name: time * exp(random.normal(0, placed)) for name, time in us.items()}
        for _ in range(2):
            read = [(name, here[name] * exp(random.normal(0, noise))) for name in (*us, *reversed(us))]
            samples = [Sample(variant=name, device_us=time, wall_us=None, host_us=5.0) for name, time in read]
            made.append(Block(round=index, steps=1, samples=samples, telemetry=Telemetry(sm_mhz=1980)))
    return made


def pair(us: Mapping[str, float], name: str = "copy", **facts: Any) -> PairResult:
    """A pair whose variants (`baseline`, `optimized`, `optimized__wide`, `peer__lib`) took these microseconds."""
    times = {f"{role.split('__')[0]}_{name}" + role[len(role.split("__")[0]) :]: t for role, t in us.items()}
    timed = {**times, CONTROL: facts.pop("control_us", us["baseline"])}
    rows = facts.pop("rows", {})
    known: dict[str, Any] = {
        "chapter": "ch07",
        "name": name,
        "status": "proven",
        "clock": "device",
        "goal": "speed",
        "device": "NVIDIA H200",
        "size": "bench",
        "shape": {"n": 4096},
        "tolerance": 1e-6,
        "cost": COST,
        "floor_us": 1.5,
        "seed": 7,
        "seconds": {"proof": 0.5, "samples": 1.25},
        "variants": [variant(stem, **rows.get(role, {})) for role, stem in zip(us, times)],
        "blocks": blocks(timed, **facts.pop("plan", {})),
    }
    return judge(PairResult.model_validate(known | facts), PEAKS)


def sound(optimized: float = 50.0, baseline: float = 100.0, **facts: Any) -> PairResult:
    return pair({"baseline": baseline, "optimized": optimized}, **facts)


def refused(status: str, name: str, reason: str, **facts: Any) -> PairResult:
    known = {"chapter": "ch08", "name": name, "status": status, "reason": reason, "device": "NVIDIA H200"}
    return PairResult.model_validate(known | facts)


def every_kind() -> list[PairResult]:
    hostile = pair(
        {"baseline": 100.0, "optimized": 50.0},
        name=HOSTILE_NAME,
        notes=[HOSTILE],
        reason=HOSTILE,
        hint=HOSTILE,
        log=f"{HOSTILE}\n{HOSTILE}",
        rows={
            "baseline": {"sentence": HOSTILE},
            "optimized": {"label": HOSTILE, "why": Why(top=[HOSTILE], metrics={HOSTILE: 1.0})},
        },
    )
    wrong = Proof(size="bench", when="after timing", reason="relative error 5.00e-03")
    return [
        pair({"baseline": 400.0, "optimized": 50.0, "optimized__wide": 44.0, "peer__lib": 55.0, "peer__old": 70.0}),
        pair({"baseline": 100.0, "optimized": 130.0}, name="smaller", goal="memory"),
        pair({"baseline": 100.0, "optimized": 100.0}, name="same"),
        pair({"baseline": 100.0, "optimized": 90.0}, name="doubtful", plan={"rounds": 2}),
        pair({"baseline": 321.0, "optimized": 123.0}, name="disturbed", control_us=400.0),
        pair(
            {"baseline": 100.0, "optimized": 77.7},
            name="wrong",
            rows={"optimized": {"status": "failed", "verdict": "invalid", "reason": "it is wrong", "proofs": [wrong]}},
        ),
        refused("failed", "crash", "segfault", log="line one\nline two"),
        refused("unsupported", "cluster", "needs sm_100, found sm_90"),
        refused("built", "compiled", "compiled for sm_80, not run"),
        hostile,
    ]


def manifest(root: Path | None = None, **facts: Any) -> Manifest:
    gpu = Gpu(name="NVIDIA H200", uuid="GPU-1", sm=90, memory_gib=139, power_limit_w=700)
    machine = Machine(hostname="box", system="Linux 6", cpu="a CPU", cores=16, memory_gib=128, gpus=[gpu], driver="580")
    digests = {str(path): sha256(path.read_bytes()).hexdigest() for path in sorted((root or Path()).glob("ch07/*.*"))}
    known: dict[str, Any] = {
        "started": STARTED,
        "command": ["benchmark_cli", "run", "ch7"],
        "options": {"budget_s": 3.0, "size": None, "profile": False},
        "targets": ["ch7"],
        "machine": machine,
        "versions": {"torch": "2.11.0", "nvcc": None},
        "git_commit": "abc123",
        "git_dirty": True,
        "sources": digests if root else {},
        "environment": {"CUDA_MODULE_LOADING": "LAZY"},
        "seed": 0,
    }
    return Manifest.model_validate(known | facts)


def summary(pairs: Sequence[PairResult], about: Manifest | None = None, **facts: Any) -> Summary:
    known: dict[str, Any] = {"finished": "2026-01-02T03:05:05+00:00", "seconds": 60.0, "complete": True}
    rows = [result.model_copy(update={"blocks": []}) for result in pairs]
    return Summary.model_validate({"manifest": about or manifest(), "pairs": rows} | known | facts)


def write_sources(root: Path) -> Path:
    return written(root, {f"ch07/{name}": text for name, text in SOURCES.items()})


def write_run(folder: Path, pairs: Sequence[PairResult], about: Manifest | None = None, **facts: Any) -> Path:
    """A run's folder as `run` leaves it: the summary, its table, the peaks, and each pair with its samples."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text(summary(pairs, about, **facts).model_dump_json())
    (folder / "peaks.json").write_text(SURVEY.model_dump_json())
    for result in pairs:
        place = folder / f"{result.chapter}_{result.name}" / "results"
        place.mkdir(parents=True)
        (place / "benchmark_test_results.json").write_text(result.model_dump_json())
    return folder
