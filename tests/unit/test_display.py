"""On a terminal each pair that is done leaves a line above the bar; a pipe hears of a long silence."""

import io
import re
import time
from pathlib import Path

import pytest
from rich.console import Console
from synthetic_run import every_kind, summary

from common.python.base.results import PairResult
from common.python.report import live_view
from common.python.report.display import Display
from common.python.report.live_view import LiveView


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
        (["copy", "doubtful"], True, "run ch07:doubtful --against 'old tree' --budget 10"),
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
    run.manifest.targets, run.manifest.options["against"] = ["ch07", "/not here/ch03"], "old tree"
    Display(Console(width=200)).finish(run, Path("runs/a b"))
    report, following, results = capsys.readouterr().out.splitlines()[-3:]
    assert report == "report: runs/a b/report.html; `benchmark_cli report --open 'runs/a b'` shows it"
    assert following.startswith(f"next: `benchmark_cli {command}` ")
    assert results == "results: runs/a b"


@pytest.mark.parametrize("width", [40, 80, 140])
def test_the_footer_has_whole_names_of_what_is_at_work_a_bar_and_the_time_left(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.StringIO()
    view = LiveView(Console(file=out, force_terminal=True, width=width))
    now = time.monotonic()
    with view:
        view.expect(68, "proofs")
        for name in ("ch01:a", "ch07:a_rather_long_name_of_a_pair", "ch02:b", "ch03:c", "ch04:d"):
            view.begin(name, "proof")
        monkeypatch.setattr(time, "monotonic", lambda: now + 10)
        view.end("ch01:a")
        assert view.progress() == "proofs 1 of 68, 11 min left"
        view.restart("3 proven,")
        assert view.progress() == "3 proven, 1 of 68"
        view.tell("ch01/x.py:3: a problem")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert "ch01/x.py:3: a problem\n" in lines
    assert "ch07:a_rather_long_name_of_a_pair, proof" in lines
    assert "and 1 more" in lines
    assert "━ 3 proven, 1 of 68" in lines


def test_a_pipe_hears_of_a_long_silence_by_itself_and_data_stays_apart(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_view, "SILENT_S", 0.0)
    heard = LiveView(Console(stderr=True))
    with heard:
        heard.expect(2)
        heard.begin("ch01:a", "samples")
        capsys.readouterr()
        time.sleep(1.2)
        heard.tell("a line")
    out, err = capsys.readouterr()
    assert out == "a line\n"
    assert err == "0 of 2: ch01:a, samples\n"
