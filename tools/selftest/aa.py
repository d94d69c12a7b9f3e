"""Experiment 1, A/A: sessions of variants against themselves, where every difference that is found is false."""

from pathlib import Path

from tools.selftest.binomial import promised_share
from tools.selftest.models import Promise, Sessions
from tools.selftest.sessions import Bench, coverage, in_turn, lay_runnable, note_on, record
from tools.selftest.tree import PAUSED, SUBJECTS, Subject

MOST_FALSE = 0.05
SESSIONS = 200  # that the promise is about


def subjects(gpu: bool) -> list[Subject]:
    """The ten pairs on a GPU; on a CPU those that it can time."""
    return list(SUBJECTS) if gpu else [subject for subject in (*SUBJECTS, PAUSED) if subject.cpu]


def experiment(bench: Bench, scratch: Path) -> Sessions:
    """Sessions of every pair in turn, each with two comparisons."""
    ready, skipped = lay_runnable(bench, scratch, subjects(bench.gpu), [0.0, 0.0])
    turns = in_turn(bench, "aa", ready, bench.form.aa_sessions)
    return Sessions(sessions=[record(bench, laid, bench.folder / "aa")[0] for _, laid in turns], skipped=skipped)


def promises(found: Sessions) -> list[Promise]:
    """False differences and coverage. A session that failed counts as a false difference."""
    told = [outcome.verdict for session in found.sessions for outcome in session.outcomes]
    failed = sum(session.failed is not None for session in found.sessions)
    false = sum(verdict not in ("same", "inconclusive") for verdict in told) + failed
    what = "A/A sessions: a verdict other than same or inconclusive"
    said = [
        promised_share("aa", what, false, len(told) + failed, MOST_FALSE, at_most=True),
        coverage("aa", "A/A sessions", found.sessions),
    ]
    for promise in said:
        promise.note = note_on(found.sessions)
        if len(found.sessions) < SESSIONS:
            promise.note += f"; the promise is about {SESSIONS}"
            promise.standing = "undecided" if promise.standing == "kept" else promise.standing
    return said
