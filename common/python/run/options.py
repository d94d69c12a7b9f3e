"""What `run` was asked for, and how its manifest records it."""

from dataclasses import asdict, dataclass
from pathlib import Path

from common.python.stats.sampling_plan import BUDGET_S
from common.python.workers.launch import ONE_HOST, Launch


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """How each pair is measured. Times in seconds; iterations and warmup, if given, fix the counts for each variant."""

    budget_s: float = BUDGET_S
    iterations: int | None = None
    warmup: int | None = None
    reproducible: bool = False
    cold_start: bool = False
    profile: bool = False
    launch: Launch = ONE_HOST


@dataclass(frozen=True)
class Options(Measuring):
    """What `run` was asked for."""

    targets: list[str]
    root: Path
    artifacts_dir: Path
    size: str | None = None
    figure: str | None = None  # figures of the size in place of the workload's: "tokens=64,batch=2"
    against: str | None = None  # the commit, or the other checkout, whose variants are timed beside these
    against_python: str | None = None  # an interpreter in which these variants are timed as well
    timeout_multiplier: float = 1.0
    suite_timeout: float | None = None
    fail_fast: bool = False
    resume: Path | None = None
    seed: int | None = None
    quick: bool = False  # what an earlier run proved at `test` size stands
    survey: bool = True  # measure peaks that are not stored; else a datasheet's stand for them, if there is one
    shard: str | None = None  # which part of the targets these are: "3/8"
    jobs: int | None = None  # pairs side by side, where not as many as the machine has room for

    def told(self) -> dict[str, str | int | float | bool | None]:
        """As they go into the manifest, in which targets have a field of their own."""
        flat = asdict(self) | asdict(self.launch)
        plain = {key: str(value) if isinstance(value, Path) else value for key, value in flat.items()}
        return {key: value for key, value in plain.items() if key not in ("targets", "root", "launch")}
