"""What `run` was asked for, how its manifest tells it, and how a session is run."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from common.python.base.results import PairResult
from common.python.corpus.discovery import Pair
from common.python.performance_targets import Peaks
from common.python.profile.nsight import StepSettings
from common.python.stats.sampling_plan import BUDGET_S
from common.python.timing.telemetry import Monitor
from common.python.workers.launch import ONE_HOST, Launch
from common.python.workers.process import Worker


@dataclass(frozen=True)
class Options:
    """What `run` was asked for."""

    targets: list[str]
    root: Path
    artifacts_dir: Path
    size: str | None = None
    figure: str | None = None  # figures of the size in place of the workload's: "tokens=64,batch=2"
    against: str | None = None  # the commit, or the other checkout, whose variants are timed beside these
    iterations: int | None = None
    warmup: int | None = None
    timeout_multiplier: float = 1.0
    suite_timeout: float | None = None
    reproducible: bool = False
    cold_start: bool = False
    profile: bool = False
    fail_fast: bool = False
    resume: Path | None = None
    seed: int | None = None
    budget_s: float = BUDGET_S
    quick: bool = False  # what an earlier run proved at `test` size stands
    survey: bool = True  # measure peaks that are not stored; else a datasheet's stand for them, if there is one
    shard: str | None = None  # which part of the targets these are: "3/8"
    jobs: int | None = None  # pairs side by side, where not as many as the machine has room for
    launch: Launch = ONE_HOST

    def told(self) -> dict[str, str | int | float | bool | None]:
        """As they go into the manifest, in which targets have a field of their own."""
        flat = asdict(self) | asdict(self.launch)
        plain = {key: str(value) if isinstance(value, Path) else value for key, value in flat.items()}
        return {key: value for key, value in plain.items() if key not in ("targets", "root", "launch")}


@dataclass(frozen=True)
class Settings(StepSettings):
    """How a session is run. Times in seconds; iterations and warmup, if given, fix the counts for each variant."""

    budget_s: float = BUDGET_S
    iterations: int | None = None
    warmup: int | None = None
    cold_start: bool = False
    peaks: Peaks | None = None
    monitors: tuple[Monitor, ...] = ()  # of the pair's GPUs on this host, by rank
    launch: Launch = ONE_HOST
    prove_at: tuple[str, ...] = ("test",)  # sizes to prove at before anything is timed
    earlier: Sequence[PairResult] = ()  # what this suite has kept so far

    def hire(self, pair: Pair, index: int = 0, fresh: bool = False) -> Worker:
        """Start a worker of this pair."""
        told = {
            "seed": self.seed,
            "gpu": self.device != "cpu",
            "reproducible": self.reproducible,
            "ranks": self.launch.ranks_here(pair.gpus),
            "launch": asdict(self.launch),
            "run_id": f"{pair.key}, worker {index}",  # by which the launchers of several hosts find each other
        }
        log, scratch = self.folder / "logs" / f"worker{index}.log", self.scratch / f"worker{index}"
        return Worker(self.root, scratch, log, told, fresh)
