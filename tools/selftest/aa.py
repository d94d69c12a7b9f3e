"""Experiment 1, A/A: sessions of variants against themselves, where every difference that is found is false."""

from pathlib import Path

from tools.selftest.binomial import at_least, no_more_than
from tools.selftest.models import Promise, Session, Sessions
from tools.selftest.sessions import Bench, lay_runnable, record
from tools.selftest.tree import PAUSED, SUBJECTS, Subject

MOST_FALSE, LEAST_COVERED = 0.05, 0.93
SESSIONS = 200  # that the promise is about


def subjects(gpu: bool) -> list[Subject]:
    """The ten pairs on a GPU; on a CPU those that it can time."""
    return list(SUBJECTS) if gpu else [subject for subject in (*SUBJECTS, PAUSED) if subject.cpu]


def experiment(bench: Bench, scratch: Path) -> Sessions:
    """Sessions of every pair in turn, each with two comparisons; at least one session, however short the time."""
    ready, skipped = lay_runnable(bench, scratch, subjects(bench.gpu), [0.0, 0.0])
    found = Sessions(sessions=[], skipped=skipped)
    for turn in range(1, bench.form.aa_sessions + 1):
        for laid in ready:
            if found.sessions and bench.out_of_time():
                return found
            bench.say(f"aa: {laid.pair.key}, session {turn} of {bench.form.aa_sessions}")
            found.sessions.append(record(bench, laid, bench.folder / "aa")[0])
    return found


def promises(found: Sessions) -> list[Promise]:
    """False differences and coverage. A session that failed counts as a false difference."""
    told = [outcome for session in found.sessions for outcome in session.outcomes]
    failed = [session for session in found.sessions if session.failed is not None]
    n = len(told) + len(failed)
    false = sum(outcome.verdict not in ("same", "inconclusive") for outcome in told) + len(failed)
    covered = sum(outcome.covered for outcome in told)
    said = [
        no_more_than("aa", "A/A sessions: a verdict other than same or inconclusive", false, n, MOST_FALSE),
        at_least("aa", "A/A sessions: the interval contains the truth", covered, n, LEAST_COVERED),
    ]
    for promise in said:
        promise.note = _note(found.sessions, failed)
        if promise.standing == "kept" and len(found.sessions) < SESSIONS:
            promise.standing = "undecided"
    return said


def _note(sessions: list[Session], failed: list[Session]) -> str:
    note = f"{len(sessions)} sessions of {len({session.pair for session in sessions})} pairs"
    if failed:
        note += f"; {len(failed)} failed, such as {failed[0].pair}: {failed[0].failed}"
    return note + (f"; the promise is about {SESSIONS}" if len(sessions) < SESSIONS else "")
