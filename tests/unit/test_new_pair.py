"""What `new` writes keeps the rules of the house, marks the lines to change, and overwrites nothing."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import pytest
from synthetic_run import ROOT, written
from test_rules import RULES, nothing_is_left_lying

from common.python.corpus.targets import TargetError
from tools.cli.new_pair import MOST_LETTERS, Kind, plan, write

LONGEST = "n" * MOST_LETTERS
CONFIG = ("--config", str(ROOT / "pyproject.toml"), "--no-cache")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "ch05").mkdir()
    (tmp_path / "ch07").mkdir()
    return tmp_path


def new(tree: Path, address: str, kind: Kind) -> None:
    write(tree, plan(tree, address, kind)[1])


@pytest.mark.parametrize("kind", get_args(Kind))
def test_a_new_pair_keeps_every_rule_of_the_house_but_that_a_kernels_todos_are_left(kind: Kind, tree: Path) -> None:
    new(tree, "ch7:two_words", kind)
    written(tree, {"common/cuda/kernel.cuh": ""})
    assert [rule for rule in RULES if rule(tree)] == [nothing_is_left_lying] * (kind == "cuda")


@pytest.mark.skipif(find_spec("ruff") is None, reason="no ruff here")
def test_the_linter_finds_its_todos_and_nothing_else_even_with_the_longest_name(tree: Path) -> None:
    (tree / "common").symlink_to(ROOT / "common")  # as in the project, where its imports are the project's own
    for kind in get_args(Kind):
        new(tree, f"ch07:{kind}", kind)
        new(tree, f"ch07:{kind}_{LONGEST}"[: len("ch07:") + MOST_LETTERS], kind)
    for command, code in (
        (["check", "--select", "FIX"], 1),
        (["check", "--ignore", "FIX"], 0),
        (["format", "--check"], 0),
    ):
        words = [sys.executable, "-m", "ruff", *command, *CONFIG, "ch07"]
        done = subprocess.run(words, capture_output=True, text=True, cwd=tree, check=False)
        assert (done.returncode, done.stderr) == (code, ""), done.stdout


@pytest.mark.parametrize(
    "name", ["baseline_x.py", "optimized_x.py", "optimized_x__wide.py", "peer_x__cub.py", "baseline_x.cu"]
)
def test_a_pair_of_which_anything_exists_is_refused(name: str, tree: Path) -> None:
    (tree / "ch07" / name).write_text("mine")
    with pytest.raises(TargetError, match=rf"ch07:x exists \(ch07/{name}\)"):
        plan(tree, "ch07:x", "torch")
    plan(tree, "ch07:x_y", "torch")  # a longer name is another pair
    plan(tree, "ch05:x", "torch")


def test_a_file_that_appears_meanwhile_is_not_overwritten(tree: Path) -> None:
    _, files = plan(tree, "ch07:x", "cuda")
    (tree / "ch07" / "optimized_x.py").write_text("mine")
    with pytest.raises(FileExistsError):
        write(tree, files)
    assert (tree / "ch07" / "optimized_x.py").read_text() == "mine"
