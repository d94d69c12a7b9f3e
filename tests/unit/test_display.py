"""On a terminal each pair that is done leaves a line above the bar."""

import io
from pathlib import Path

import pytest
from rich.console import Console
from synthetic_run import every_kind, summary

from common.python.base.results import PairResult
from common.python.report.display import Display


def pair(name: str) -> PairResult:
    return PairResult(chapter="ch01", name=name, status="unsupported", device="cpu", reason="there is no GPU")


@pytest.mark.parametrize("width", [40, 80, 140])
def test_names_and_reasons_are_whole_and_the_footer_tells_what_is_left(width: int) -> None:
    out = io.StringIO()
    display = Display(Console(file=out, force_terminal=True, width=width))
    display.expect(3)
    with display:
        for name, phase in (("a_long_name_of_a_pair", "start"), ("b", "start"), ("a_long_name_of_a_pair", "done")):
            display.show(phase, pair(name))
        assert display.progress() == "1 of 3, 0 s left"
        display.show("proven", pair("b"))
        assert display.progress() == "1 proven, 1 of 3"
    assert "ch01:a_long_name_of_a_pair" in out.getvalue()
    assert "GPU" in out.getvalue()
    out.truncate(0)
    noted = pair("b").model_copy(update={"notes": ["of the control and of a_long_name_in_a_note alone"]})
    display.finish(summary([noted]), Path("a"))
    assert "a_long_name_in_a_note" in out.getvalue()


@pytest.mark.parametrize(
    ("names", "complete", "command"),
    [
        (["copy", "crash"], True, "verify ch08:crash"),
        (["copy", "doubtful"], True, "run ch07:doubtful --budget 10"),
        (["same", "copy"], True, "show ch07:copy"),
        (["cluster"], True, "list --runnable"),
        (["copy"], False, "run --resume 'runs/a b'"),
        (["own"], True, "verify '/not here/ch03:own'"),
    ],
)
def test_a_run_ends_with_the_report_and_one_command_that_helps(
    names: list[str], complete: bool, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    own = PairResult(chapter="folder_ch03", name="own", status="failed", device="cpu", reason="it raised")
    known = {result.name: result for result in (*every_kind(), own)}
    run = summary([known[name] for name in names], complete=complete)
    run.manifest.targets = ["ch07", "/not here/ch03"]
    Display(Console(width=200)).finish(run, Path("runs/a b"))
    report, following, results = capsys.readouterr().out.splitlines()[-3:]
    assert report == "report: runs/a b/report.html; `benchmark_cli report --open 'runs/a b'` shows it"
    assert following.startswith(f"next: `benchmark_cli {command}` ")
    assert results == "results: runs/a b"
