"""Experiment 1, A/A: sessions of variants against themselves, where every difference that is found is false."""

from collections.abc import Sequence
from pathlib import Path

from tools.selftest.binomial import at_least, no_more_than
from tools.selftest.models import Name, Promise, Session, Sessions
from tools.selftest.sessions import Bench, contains, one_by_one, runnable, said_different
from tools.selftest.tree import PAUSED, SUBJECTS, Laid, Subject, lay_lanes

MOST_FALSE, LEAST_COVERED = 0.05, 0.93
SESSIONS = 200  # that the promise is about


def subjects(gpu: bool) -> list[Subject]:
    """The ten pairs on a GPU; on a CPU those that it can time."""
    return list(SUBJECTS) if gpu else [subject for subject in (*SUBJECTS, PAUSED) if subject.cpu]


def experiment(bench: Bench, scratch: Path) -> Sessions:
    """Sessions of every pair in turn, so that what is left out where time is short is left out of all."""
    found = Sessions(sessions=[])
    ready: list[Laid] = []
    for subject in subjects(bench.gpu):
        laid = lay_lanes(scratch, subject, [0.0] * bench.form.aa_lanes)
        if reason := runnable(bench, laid):
            found.skipped[subject.key] = reason
        else:
            ready.append(laid)
    plan = ready * bench.form.aa_sessions

    def say(index: int) -> None:
        turn = index // len(ready) + 1
        bench.say(f"aa: {plan[index].pair.key}, session {turn} of {bench.form.aa_sessions}")

    def keep(session: Session) -> None:
        found.sessions.append(session)
        bench.keep(found)

    one_by_one(bench, plan, bench.folder / "aa", say, keep)
    return found


def promises(found: Sessions) -> list[Promise]:
    """What A/A sessions say of promise 1."""
    return judged("aa", found.sessions, SESSIONS, "A/A sessions")


def judged(experiment: Name, sessions: Sequence[Session], count: int, what: str) -> list[Promise]:
    """False differences and coverage. A session that failed counts as a false difference."""
    told = [outcome for session in sessions for outcome in session.outcomes]
    lost = sum(session.failed is not None for session in sessions)
    most = no_more_than(
        experiment,
        f"{what}: a verdict other than same or inconclusive",
        sum(map(said_different, told)) + lost,
        len(told) + lost,
        MOST_FALSE,
    )
    least = at_least(
        experiment,
        f"{what}: the interval contains the truth",
        sum(map(contains, told)),
        len(told) + lost,
        LEAST_COVERED,
    )
    return [_counted(promise, sessions, count) for promise in (most, least)]


def _counted(promise: Promise, sessions: Sequence[Session], count: int) -> Promise:
    """The same, undecided where there were fewer sessions than the promise is about; with the pairs that fell short."""
    note = f"{len(sessions)} sessions of {len({session.pair for session in sessions})} pairs"
    if failures := [session for session in sessions if session.failed]:
        note += f"; {len(failures)} failed, such as {failures[0].pair}: {failures[0].failed}"
    standing = promise.standing
    if len(sessions) < count:
        note += f"; the promise is about {count}"
        standing = "undecided" if standing == "kept" else standing
    return promise.model_copy(update={"standing": standing, "note": note})
