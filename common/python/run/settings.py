"""How a session is run."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from common.python.base.results import PairResult
from common.python.corpus.discovery import Pair
from common.python.performance_targets import Peaks
from common.python.profile.nsight import StepSettings
from common.python.stats.sampling_plan import BUDGET_S
from common.python.timing.telemetry import Monitor
from common.python.workers.launch import ONE_HOST, Launch
from common.python.workers.process import Worker


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

    def hire(self, pair: Pair, index: int = 0, fresh: bool = False, name: str = "") -> Worker:
        """Start a worker of this pair, where the variant `name` of it runs."""
        variant = pair.variant(name)
        told = {
            "seed": self.seed,
            "gpu": self.device != "cpu",
            "reproducible": self.reproducible,
            "ranks": self.launch.ranks_here(pair.gpus),
            "launch": asdict(self.launch),
            "python": variant.python,
            "run_id": f"{pair.key}, worker {index}",  # by which the launchers of several hosts find each other
        }
        log, scratch = self.folder / "logs" / f"worker{index}.log", self.scratch / f"worker{index}"
        return Worker(variant.root, scratch, log, told, fresh)
