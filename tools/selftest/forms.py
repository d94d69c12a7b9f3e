"""How much each experiment does: the quick form, meant for two minutes on an H200, and the full one, for twenty."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tools.selftest.models import Name

FewOrMany = Literal["quick", "full"]


@dataclass(frozen=True)
class Form:
    """Counts, and the seconds after which an experiment begins nothing new: counts may then be missed, and it says so.

    The seconds are shares of the form's whole time, which those that are asked for have among them. What an experiment
    leaves of its own, the later ones have. Its first session and a suite's first quick run are begun all the same.
    """

    name: FewOrMany
    session_s: float  # sampling budget of a session of A/A, and of the spin kernel's
    aa_sessions: int  # of each pair
    aa_lanes: int
    planted_sessions: int
    planted_copies: int  # of the largest slowdown, whose promise needs the most trials
    drift_sessions: int
    drift_lanes: int
    others_samples: int  # of each side that a session has time for, where it is held against other methods
    repeats: int  # of each method on each pair
    others_pairs: int
    suite_pairs: int
    suite_passes: int
    every_pair: bool  # of the chapters is run among the cheats, not only those of the suites
    seconds: Mapping[Name, float]


QUICK = Form(
    name="quick",
    session_s=0.3,
    aa_sessions=1,
    aa_lanes=2,
    planted_sessions=4,
    planted_copies=3,
    drift_sessions=2,
    drift_lanes=2,
    others_samples=16,
    repeats=3,
    others_pairs=2,
    suite_pairs=1,
    suite_passes=2,
    every_pair=False,
    seconds={"aa": 14.0, "truth": 16.0, "drift": 10.0, "others": 14.0, "cheats": 22.0, "cost": 8.0, "repeat": 6.0},
)
FULL = Form(
    name="full",
    session_s=0.15,
    aa_sessions=20,
    aa_lanes=2,
    planted_sessions=60,
    planted_copies=5,
    drift_sessions=12,
    drift_lanes=5,
    others_samples=64,
    repeats=20,
    others_pairs=10,
    suite_pairs=20,
    suite_passes=5,
    every_pair=True,
    seconds={
        "aa": 150.0,
        "truth": 110.0,
        "drift": 55.0,
        "others": 320.0,
        "cheats": 210.0,
        "cost": 100.0,
        "repeat": 210.0,
    },
)
FORMS: dict[FewOrMany, Form] = {"quick": QUICK, "full": FULL}
