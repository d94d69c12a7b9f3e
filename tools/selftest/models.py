"""What `selftest` leaves behind: every raw number of its experiments, and what they say of each promise."""

from typing import Literal

from pydantic import Field

from common.python.base.results import Interval, Manifest, Model, Verdict

Name = Literal["aa", "truth", "others", "cheats"]
NAMES: tuple[Name, ...] = ("aa", "truth", "others", "cheats")
Standing = Literal["kept", "refuted", "undecided", "not run"]


class Promise(Model):
    """One line of the table: what was promised, what was measured, and whether that keeps it."""

    experiment: Name
    promise: str
    measured: str
    bound: str
    standing: Standing
    hits: int | None = Field(default=None, description="where the promise is about a share: how often it was so")
    n: int | None = Field(default=None, description="out of how many")
    low: float | None = Field(default=None, description="95% Clopper-Pearson interval of the share")
    high: float | None = None
    note: str | None = None

    def model_post_init(self, _: object) -> None:
        self.measured = "-" if self.standing == "not run" else self.measured


def standing(tried: bool, kept: bool, refuted: bool) -> Standing:
    """That of a promise which was `tried`: refuted where that is clear, else kept where that is, else undecided."""
    return "not run" if not tried else "refuted" if refuted else "kept" if kept else "undecided"


class Outcome(Model):
    """One comparison of a session: the time of `above` over that of `below`, which no other comparison shares.

    `truth` is what the ratio is known to be: 1 for a variant against itself, less where a slowdown was planted below.
    """

    above: str
    below: str
    planted: float = Field(default=0.0, description="nominal share of its own time by which `below` was slowed")
    truth: float = 1.0
    interval: Interval | None
    verdict: Verdict

    @property
    def covered(self) -> bool:
        """Whether the interval contains the truth."""
        return self.interval is not None and self.interval.low <= self.truth <= self.interval.high


class Session(Model):
    """One session; all else of it is in `sessions.jsonl.gz`, a line a session, in this order."""

    pair: str
    number: int
    failed: str | None = None
    outcomes: list[Outcome] = Field(default=[])


class Sessions(Model):
    """A/A: sessions of variants against themselves."""

    sessions: list[Session]
    skipped: dict[str, str] = Field(default={}, description="pairs that cannot run here, with why")


class Reading(Model):
    """What the clock read of a step whose time is known. Microseconds."""

    label: str
    known_us: float
    read_us: list[float]


class Truth(Model):
    """The spin kernel and the empty step, and sessions with planted slowdowns."""

    gpu: bool = Field(default=True, description="whether there is one, for the spin kernel")
    readings: list[Reading] = Field(default=[])
    floor_us: float | None = Field(default=None, description="what the harness prints as the time of an empty step")
    empty_us: list[float] = Field(default=[], description="what an empty step reads in blocks")
    planted: list[Session] = Field(default=[])
    failed: list[str] = Field(default=[])


class Timing(Model):
    """One comparison of two equal sides by one method."""

    pair: str
    method: str
    repeat: int
    a_us: float
    b_us: float
    ratio: float
    seconds: float


class Others(Model):
    """The harness and other methods on the same pairs."""

    timings: list[Timing]
    skipped: dict[str, str] = Field(default={}, description="methods and pairs that could not run, with why")


class Caught(Model):
    """One variant of an honest or a cheating pair, and what became of it."""

    pair: str
    variant: str
    honest: bool
    refused: bool
    reason: str | None


class Cheats(Model):
    """Cheats with their honest twins, and honest pairs of the chapters."""

    rows: list[Caught] = Field(default=[])
    not_run: list[str] = Field(default=[], description="pairs of cheats for which there was no time")
    honest_pairs: int = Field(default=0, description="pairs of the chapters that were run")
    honest_not_run: list[str] = Field(default=[], description="those for which there was no time")


class Report(Model):
    """All that is said about this machine; each experiment's raw numbers are in its own folder."""

    schema_version: int = 1
    manifest: Manifest
    device: str
    form: Literal["quick", "full"]
    seconds: dict[str, float] = Field(description="that each experiment took")
    promises: list[Promise]
    not_run: dict[str, str] = Field(default={}, description="experiments without a result, with why")
    failed: dict[str, str] = Field(default={}, description="experiments that ended with an error")
