"""What a pair's run took is kept beside what others noted, and a file that says nothing sound says nothing."""

from pathlib import Path

import pytest

from common.python.run.last_run import NAME, LastRun, LastRuns


def test_what_is_noted_is_kept_beside_what_others_kept_meanwhile(tmp_path: Path) -> None:
    one, other = LastRuns(tmp_path), LastRuns(tmp_path)
    assert one.known() == {}
    one.keep()
    assert list(tmp_path.iterdir()) == [], "nothing was noted"
    one.note("ch01:a at bench", LastRun(3.0, 1.5))
    one.note("ch01:b at bench", LastRun(1.0))
    one.keep()
    other.note("ch01:b at bench", LastRun(2.0))
    other.keep()
    assert one.known() == {"ch01:a at bench": LastRun(3.0, 1.5), "ch01:b at bench": LastRun(2.0, None)}


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "3", '{"ch01:a": 3.0}', '{"ch01:a": null}', '{"ch01:a": {}}', "\xff"),
        *(f'{{"ch01:a": {{"seconds": {s}, "gib": {g}}}}}' for s, g in (("NaN", 1), (1, "Infinity"), ('"x"', 1))),
        '{"ch01:a": {"seconds": 1, "gib": 1, "more": 1}}',
    ],
)
def test_what_is_not_sound_says_nothing_and_is_replaced(text: str, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(text.encode("latin-1"))
    found = LastRuns(tmp_path)
    assert found.known() == {}
    found.note("ch01:a", LastRun(3.0))
    found.keep()
    assert found.known() == {"ch01:a": LastRun(3.0)}


def test_where_nothing_can_be_written_a_suite_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = LastRuns(tmp_path / "file")
    found.note("ch01:a", LastRun(3.0))
    found.keep()
    assert found.known() == {}
