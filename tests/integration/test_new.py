"""A pair of each kind, as `new` writes it, is verified and runs at once; and the commands that show what there is."""

import re
from pathlib import Path

import pytest
from small_tree import Done, Tree, assert_usage, cli

from common.python.base.toolkit import find_nvcc
from tools.cli.new_pair import MOST_LETTERS


def invoke(tree: Tree, *words: str | Path) -> Done:
    return cli(*words, "--root", tree.root)


@pytest.fixture
def chapters(tree: Tree) -> Tree:
    (tree.root / "ch05").mkdir()
    (tree.root / "ch05" / "__init__.py").touch()
    return tree


def test_a_new_pair_of_each_kind_is_verified_and_runs_at_once(chapters: Tree) -> None:
    for kind in ("torch", "triton", "cuda"):
        done = invoke(chapters, "new", f"ch5:my_{kind}", "--kind", kind)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"wrote ch05/baseline_my_{kind}.py")
    assert {path.suffix for path in chapters.root.glob("ch05/*_my_cuda.*")} == {".py", ".cu"}
    checked = invoke(chapters, "verify", "--no-build")
    assert (checked.returncode, checked.stderr) == (0, ""), checked.stdout
    rows = re.finditer(r"(?m)^(\w+) +(\d+) +\d+ +(\d+) +\d+$", checked.stdout)
    counts = {row[1]: (int(row[2]), int(row[3])) for row in rows}  # passed and problems
    assert counts["sources"] == counts["imports"] == (6, 0)
    assert counts["proofs"][1] == 0
    assert counts["proofs"][0] >= 4  # where there is no GPU the pair in CUDA is not run
    if find_nvcc() is not None:
        built = invoke(chapters, "build", "ch05:my_cuda", "--arch", "sm_80", "--artifacts-dir", chapters.artifacts)
        assert (built.returncode, "0 warnings" in built.stdout) == (0, True), built.stdout
    ran = chapters.run("ch05:my_torch", "ch05:my_triton", size="test", iterations=3)
    assert {pair.name: pair.status for pair in ran.pairs} == {"my_torch": "measured", "my_triton": "proven"}


def test_a_refused_pair_is_one_line_and_nothing_is_written(chapters: Tree) -> None:
    refused = {
        "my": "'my' names no new pair: write its folder and name, as in ./kernels:my",
        "ch05": "write its folder and name",
        "ch05/baseline_my_thing.py": "write its folder and name",
        "ch21:x": "chapters are ch01 to ch20",
        "ch06:my": "; did you mean ch05?",
        "ch05:My-Pair": "did you mean ch05:my_pair?",
        "ch05:x__wide": "did you mean ch05:x_wide?",
        "ch05:../x": "did you mean ch05:x?",
        "ch05:a\nb": r"'a\nb' is no name of a pair",
        f"ch05:{'n' * (MOST_LETTERS + 1)}": f"at most {MOST_LETTERS} characters",
    }
    for address, right in refused.items():
        assert_usage(invoke(chapters, "new", address), right)
    assert [path.name for path in chapters.root.glob("ch05/*")] == ["__init__.py"]
