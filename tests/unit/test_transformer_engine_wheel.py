"""What would be built of Transformer Engine, and what is refused."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tools import transformer_engine_wheel as builder


@pytest.mark.parametrize(
    ("version", "reference"),
    [("2.17", "v2.17"), ("2.8.0", "v2.8.0"), ("v2.8.0+40c69e7", "v2.8.0+40c69e7"), ("40c69e7", "40c69e7")],
)
def test_a_release_a_tag_or_a_commit_is_what_pip_would_build(
    version: str, reference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "environment", lambda tools: {"NVTE_FRAMEWORK": "pytorch"})
    done = CliRunner().invoke(builder.app, [version, "--dry-run", "--root", str(tmp_path)])
    assert done.exit_code == 0
    assert f"git+{builder.REPOSITORY}@{reference}\n" in done.stdout.replace("'", "")
    assert not (tmp_path / "build").exists()


@pytest.mark.parametrize("version", ["main", "2", "40c69e", "v2.8;x"])
def test_what_is_none_of_them_is_one_line_and_2(version: str) -> None:
    done = CliRunner().invoke(builder.app, [version, "--dry-run"])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
