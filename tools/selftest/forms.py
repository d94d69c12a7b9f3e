"""How much each experiment does: the quick form, meant for two minutes on an H200, and the full one, for twenty."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tools.selftest.models import Name

FewOrMany = Literal["quick", "full"]


@dataclass(frozen=True)
class Form:
    """Counts, and the seconds after which an experiment begins nothing new: counts may then be missed, and it says so.

    The seconds are shares of the form's whole time, which the experiments that are asked for divide among them. What an
    experiment leaves of its own, the later ones have.
    """

    name: FewOrMany
    session_s: float  # sampling budget of a session of A/A, and of the spin kernel's
    aa_sessions: int  # of each pair
    aa_lanes: int
    planted_sessions: int
    planted_copies: int  # of the largest slowdown, whose promise needs the most trials
    others_samples: int  # of each side that a session has time for, where it is held against other methods
    repeats: int  # of each method on each pair
    others_pairs: int
    honest_pairs: int  # of the chapters, drawn at random
    every_pair: bool  # also pairs that take long to compile
    seconds: Mapping[Name, float]


QUICK = Form(
    name="quick",
    session_s=0.3,
    aa_sessions=1,
    aa_lanes=2,
    planted_sessions=4,
    planted_copies=3,
    others_samples=16,
    repeats=3,
    others_pairs=2,
    honest_pairs=1,
    every_pair=False,
    seconds={"aa": 22.0, "truth": 22.0, "others": 16.0, "cheats": 30.0},
)
FULL = Form(
    name="full",
    session_s=0.15,
    aa_sessions=20,
    aa_lanes=2,
    planted_sessions=60,
    planted_copies=5,
    others_samples=64,
    repeats=20,
    others_pairs=10,
    honest_pairs=1000,
    every_pair=True,
    seconds={"aa": 300.0, "truth": 200.0, "others": 240.0, "cheats": 260.0},
)
FORMS: dict[FewOrMany, Form] = {"quick": QUICK, "full": FULL}
