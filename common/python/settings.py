"""How a session is run, and the one way in which it may end without a result."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from common.python.performance_targets import Peaks
from common.python.results import PairResult
from common.python.telemetry import Monitor

TIME_UP = "the suite's time was up"
Progress = Callable[[str, PairResult], None]


class SuiteTimeUp(Exception):
    """The time of the whole suite is over: nothing is said against the pair that was being measured."""


@dataclass(frozen=True)
class Settings:
    """How a session is run. Times in seconds; iterations and warmup, if given, fix the counts for each variant."""

    root: Path
    folder: Path  # of this pair's artifacts
    scratch: Path
    size: str
    seed: int
    device: str
    budget_s: float = 3.0
    time_limit_s: float = 120.0
    suite_deadline: float = math.inf  # a monotonic time, at which the suite ends whatever its pairs do
    iterations: int | None = None
    warmup: int | None = None
    reproducible: bool = False
    cold_start: bool = False
    profile: bool = False
    peaks: Peaks | None = None
    monitor: Monitor | None = None
    progress: Progress = lambda phase, result: None
    prove_at: tuple[str, ...] = ("test",)  # sizes to prove at before anything is timed
