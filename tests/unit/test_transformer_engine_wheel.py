"""What would be built of Transformer Engine, and what is refused."""

from pathlib import Path

import pytest

from tools import transformer_engine_wheel as builder
from tools.cli.benchmark_cli import ended


def code_of(*words: str) -> int:
    with pytest.raises(SystemExit) as done:
        ended(builder.app, builder.PROGRAM, list(words))
    return int(done.value.code or 0)


@pytest.mark.parametrize(
    ("version", "reference"),
    [("2.17", "v2.17"), ("2.8.0", "v2.8.0"), ("v2.8.0+40c69e7", "v2.8.0+40c69e7"), ("40c69e7", "40c69e7")],
)
def test_a_release_a_tag_or_a_commit_is_what_pip_would_build(
    version: str, reference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(builder, "environment", lambda tools: {"NVTE_FRAMEWORK": "pytorch"})
    assert code_of(version, "--dry-run", "--root", str(tmp_path)) == 0
    assert f"git+{builder.REPOSITORY}@{reference}\n" in capsys.readouterr().out.replace("'", "")
    assert not (tmp_path / "build").exists()


@pytest.mark.parametrize("version", ["main", "2", "40c69e", "v2.8;x"])
def test_what_is_none_of_them_is_one_line_and_2(version: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert (code_of(version, "--dry-run"), capsys.readouterr().err.count("\n")) == (2, 1)
