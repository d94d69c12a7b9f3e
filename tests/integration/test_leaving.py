"""A worker that has done its work ends beside the next pair's proof, and is gone before that pair is timed."""

import contextlib
import time
from pathlib import Path
from textwrap import dedent

import pytest
from small_tree import HONEST, Tree, doing

from common.python.reaper import parent_of
from common.python.results import PairResult
from common.python.session import Session

AT_EXIT = """
import os, time
from multiprocessing.util import Finalize  # a forked worker ends without atexit
from pathlib import Path

def leave():
    Path(__file__ + ".leaving").write_text(str(os.getpid()))
    time.sleep({seconds})
    Path(__file__ + ".gone").touch()

Finalize(None, leave, exitpriority=0)
"""


def written(path: Path) -> str:
    deadline = time.monotonic() + 10
    while not (path.exists() and path.read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return path.read_text()


@pytest.mark.parametrize("seconds", [0.3, 600])
def test_the_next_pair_begins_while_a_worker_ends_and_is_prepared_when_it_is_gone(tree: Tree, seconds: float) -> None:
    tree.pair("ch01:a", optimized=AT_EXIT.format(seconds=seconds) + dedent(HONEST))
    tree.pair("ch01:b")
    beside: dict[str, bool] = {}
    folder = tree.root / "ch01"

    def watch(phase: str, result: PairResult) -> None:
        if result.key == "ch01:b" and phase in ("start", "warm-up"):
            beside[phase] = parent_of(int(written(folder / "optimized_a.py.leaving"))) is not None

    done = tree.open("ch1", show=watch).run()
    assert [pair.status for pair in done.pairs] == ["measured"] * 2
    assert beside == {"start": True, "warm-up": False}
    assert (folder / "optimized_a.py.gone").exists() == (seconds < 1), "one that does not end is killed"
    assert done.pairs[0].seconds["end"] < 0.3


NEEDS = """
from pathlib import Path

def prepare(a):
    if not Path({gone!r}).exists():
        raise torch.OutOfMemoryError("the last pair's worker still holds the memory")
    return lambda: a * 2
"""


@pytest.mark.parametrize("who", ["baseline", "optimized"])
def test_a_pair_after_one_that_filled_the_memory_waits_for_its_worker(tree: Tree, who: str) -> None:
    gone = str(tree.root / "ch01" / "optimized_a.py.gone")
    tree.pair("ch01:a", optimized=AT_EXIT.format(seconds=0.4) + dedent(HONEST))
    tree.pair("ch01:b", **{"optimized": HONEST, who: NEEDS.format(gone=gone)})
    done = tree.open("ch1").run()
    assert [pair.status for pair in done.pairs] == ["measured"] * 2
    assert not any("do not fit" in note for note in done.pairs[1].notes)


def test_the_last_pairs_worker_is_gone_when_the_suite_ends(tree: Tree) -> None:
    tree.pair("ch01:a", optimized=AT_EXIT.format(seconds=0.3) + dedent(HONEST))
    done = tree.open("ch1").run()
    assert [pair.status for pair in done.pairs] == ["measured"]
    assert (tree.root / "ch01" / "optimized_a.py.gone").exists()


def test_where_the_gpu_is_for_one_process_a_pair_waits_for_its_workers_end(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.python.settings.Settings.shared", lambda settings: False)
    tree.pair("ch01:a", optimized=AT_EXIT.format(seconds=0.3) + dedent(HONEST))
    gone: list[bool] = []
    run = Session.run

    def noting(session: Session) -> PairResult:
        result = run(session)
        gone.append((tree.root / "ch01" / "optimized_a.py.gone").exists())
        return result

    monkeypatch.setattr(Session, "run", noting)
    tree.open("ch1").run()
    assert gone == [True]


@pytest.mark.parametrize("phase", ["warm-up", "end"])
def test_a_listener_that_breaks_keeps_no_worker(tree: Tree, phase: str) -> None:
    tree.pair("ch01:a", optimized=doing("import os; open(__file__ + '.pid', 'w').write(str(os.getpid()))"))

    def show(heard: str, result: PairResult) -> None:
        if heard in (phase, "end"):
            raise BrokenPipeError

    suite = tree.open("ch1", show=show)
    with contextlib.suppress(BrokenPipeError):
        suite.run()
    assert parent_of(int((tree.root / "ch01" / "optimized_a.py.pid").read_text())) is None
