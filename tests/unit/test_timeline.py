"""A timeline's picture from the traces of a run's folder."""

import json
from pathlib import Path

import pytest

from tools.documentation.timeline import SIDES, main


def test_a_picture_is_made_of_both_traces_and_a_missing_one_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(tmp_path), "ch11:x", str(tmp_path / "x.svg")]
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert "baseline_x.trace.json is not there" in capsys.readouterr().err
    folder = tmp_path / "ch11_x" / "profiles"
    folder.mkdir(parents=True)
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "ts": 5, "dur": 3, "args": {"stream": 7}}
    for events in ([], [kernel]):
        for side in SIDES:
            (folder / f"{side}_x.trace.json").write_text(json.dumps({"traceEvents": events}))
        if not events:
            with pytest.raises(SystemExit, match="2"):
                main(words)
            assert "traces without a kernel" in capsys.readouterr().err
    main(words)
    assert "optimized, stream 1" in (tmp_path / "x.svg").read_text()
