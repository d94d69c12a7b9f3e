"""On a terminal every pair that is at work has a line, the last of which tells the time left."""

from rich.console import Console

from common.python.base.results import PairResult
from common.python.report.display import Display


def pair(name: str) -> PairResult:
    return PairResult(chapter="ch01", name=name, status="unsupported", device="cpu")


def test_pairs_at_work_have_lines_until_they_are_done() -> None:
    display = Display(Console(force_terminal=True, width=200, quiet=True))
    display.expect(3)
    for name, phase in (("a", "start"), ("b", "start"), ("a", "proof")):
        display.show(phase, pair(name))
    assert [(one.pair, one.why) for one in display._running()] == [("ch01:a", "proof"), ("ch01:b", "start")]
    display.show("start", pair("c"))
    display.show("done", pair("a"))
    assert [(one.pair, one.why) for one in display._running()] == [("ch01:b", "start"), ("ch01:c", "start, 0 s left")]
    display.show("done", pair("b"))
    display.show("done", pair("c"))
    assert display._running() == []
