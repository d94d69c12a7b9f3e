"""The footer tells how far a long command is and what is at work; a pipe hears of it every 30 s, whatever happens."""

import io
import re
import time

import pytest
from rich.console import Console

from common.python.report import live_view
from common.python.report.live_view import LiveView


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
