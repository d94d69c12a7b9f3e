"""Experiment 1, A/A: sessions of variants against themselves, where every difference that is found is false."""

from collections.abc import Sequence
from pathlib import Path

from tools.selftest.promises import Promise, promised_share
from tools.selftest.sessions import Bench, Outcome, coverage, in_turn, lay_runnable, note_on, record
from tools.selftest.tree import subjects

MOST_FALSE = 0.05
COMPARISONS = 400  # that the promise is about: 200 sessions


def experiment(bench: Bench, scratch: Path) -> list[Promise]:
    """Sessions of every pair in turn, each with two comparisons."""
    ready = lay_runnable(bench, scratch, subjects(bench.gpu), [0.0, 0.0])
    found = list[Outcome]()
    for _, laid in in_turn(bench, "aa", ready, bench.form.aa_sessions):
        found += record(bench, laid, bench.folder / "aa")[0]
    return promises(found)


def promises(found: Sequence[Outcome]) -> list[Promise]:
    """False differences and coverage."""
    what = "A/A sessions: a verdict other than same or inconclusive"
    false = sum(one.verdict not in ("same", "inconclusive") for one in found)
    said = [
        promised_share("aa", what, false, len(found), MOST_FALSE, at_most=True),
        coverage("aa", "A/A sessions", found),
    ]
    for promise in said:
        promise.note = note_on(found)
        if len(found) < COMPARISONS:
            promise.note += f"; the promise is about {COMPARISONS}"
            promise.standing = "undecided" if promise.standing == "kept" else promise.standing
    return said
