"""Whoever ends a run ends a worker that follows another host too."""

from pathlib import Path
from typing import Any

import pytest
from common.python.workers.sharing import Share

from common.python.base.results import PairResult
from common.python.run.node_follower import follow
from common.python.run.settings import Settings


def test_a_follower_is_one_of_its_sessions_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    class Worker:
        share: Any = None

        def call(self, command: str, timeout_s: float) -> None:
            seen.append(share.workers == [self] and self.share is share)

        def log_tail(self) -> str:
            return ""

        def part(self) -> None: ...
        def await_end(self, deadline: float) -> None: ...
        def kill(self) -> None: ...

    monkeypatch.setattr(Settings, "hire", lambda settings, pair: Worker())
    with Share() as share:
        settings = Settings(tmp_path, tmp_path, tmp_path, "cpu", 0, "cpu", share=share)
        row = PairResult(chapter="ch01", name="a", status="proven", device="cpu")
        pair: Any = None
        assert follow(pair, row, settings).status == "unsupported"
    assert seen == [True]
