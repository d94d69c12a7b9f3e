"""`run --against`: another commit's rungs beside today's, in the same rounds, each file from its own tree."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_tree import Done, Tree, assert_usage, cli, doing
from synthetic_run import git

from common.python.base.results import Summary
from common.python.regress.against import PREFIX

USES_HELPER = """
    from ch01 import helper

    def prepare(a):
        def step():
            return helper.double(a)

        return step
"""
HELPER = "import time\n\n\ndef double(a):\n    time.sleep(0.002)\n    return a * 2\n"
SLOW = HELPER.replace("0.002", "0.012")
LIMITED = ("--size", "test", "--iterations", "8", "--warmup", "1", "--seed", "7")


def commit(tree: Tree) -> None:
    git(tree.root, "add", "ch01")
    git(tree.root, "commit", "-q", "-m", "x", "--allow-empty")


@pytest.fixture
def repository(tree: Tree) -> Iterator[Tree]:
    """One commit of a pair whose rungs, far slower, import a helper; none of its worktrees is left at the end."""
    tree.pair("ch01:x", doing("__import__('time').sleep(0.0005)"), optimized=USES_HELPER, padded=USES_HELPER)
    tree.file("ch01", "helper", HELPER)
    git(tree.root, "init", "-q")
    commit(tree)
    yield tree
    assert PREFIX not in git(tree.root, "worktree", "list")
    assert not list(Path(tempfile.gettempdir()).glob(f"{PREFIX}{os.getpid()}-*"))


def run(tree: Tree, *words: str) -> Done:
    return cli("run", "--root", tree.root, "--artifacts-dir", tree.artifacts, "ch01:x", *LIMITED, *words)


def ending_with(code: int, tree: Tree, ref: str, word: str = "slower") -> str:
    """What a run says that ends with this code; a host that is too noisy gets eight more tries."""
    for _ in range(9):
        done = run(tree, "--against", ref)
        if done.returncode == code and word in done.stdout and "not compared" not in done.stdout:
            break
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_the_same_code_is_not_slower_than_itself(repository: Tree) -> None:
    (orphan,) = [tempfile.mkdtemp(prefix=f"{PREFIX}999999999-")]
    git(repository.root, "worktree", "add", "--detach", orphan)  # of a run that was killed
    commit(repository)
    said = ending_with(0, repository, "HEAD~1", " against HEAD~1, ")
    assert "ch01:x: " in said
    assert "ch01:x padded: " in said
    assert " against HEAD~1, " in said
    assert not os.path.exists(orphan)
    file = max(repository.artifacts.glob("2*/summary.json"))
    (pair,) = Summary.model_validate_json(file.read_text()).pairs
    rows = {row.name: row for row in pair.variants}
    own, ref = rows["optimized_x"], rows["optimized_x@HEAD~1"]
    assert (ref.role, ref.label, ref.file) == ("ref", "optimized@HEAD~1", "ch01/optimized_x.py@HEAD~1")
    assert ref.sentence.startswith(f"at {git(repository.root, 'rev-parse', 'HEAD~1')[:12]}: ")
    assert own.against.rounds > 2
    assert pair.best_peer is None


def test_a_loss_in_what_a_rung_imports_is_found(repository: Tree) -> None:
    repository.file("ch01", "helper", SLOW)
    assert "against HEAD, slower" in ending_with(3, repository, "HEAD")
    commit(repository)
    repository.file("ch01", "helper", HELPER)
    assert "against HEAD, faster" in ending_with(0, repository, "HEAD", "against HEAD, faster")
    other = repository.root / "other"
    git(repository.root, "worktree", "add", str(other), "HEAD")
    assert "against other, faster" in ending_with(0, repository, str(other), "against other, faster")
    assert other.is_dir(), "a checkout is the user's"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("tolerance=1e-6", "tolerance=1e-5", "-tolerance=1e-06 +tolerance=1e-05"),
        ("SCALE = 2", "SCALE = 3", "-SCALE = 2"),
    ],
)
def test_a_workload_that_asks_for_something_else_is_refused(repository: Tree, old: str, new: str, told: str) -> None:
    baseline = repository.root / "ch01" / "baseline_x.py"
    text = baseline.read_text().replace("lambda a: a * 2", "lambda a: a * SCALE") + "\nSCALE = 2\n"
    baseline.write_text(text)
    commit(repository)
    baseline.write_text(
        text.replace("return a * 2", "return 2 * a").replace("tolerance=1e-6,", "tolerance=1e-6, rungs='padded',")
    )
    assert run(repository, "--against", "HEAD").returncode in (0, 3), "what solves it may change, and its time"
    baseline.write_text(text.replace(old, new))
    assert_usage(run(repository, "--against", "HEAD"), "ch01:x asks for something else at HEAD", told)


def test_what_cannot_be_compared_with_is_told_in_one_line(repository: Tree) -> None:
    assert_usage(run(repository, "--against", "nowhere"), "'nowhere' is neither a commit of", "nor a folder")
    git(repository.root, "checkout", "-q", "--orphan", "bare")
    git(repository.root, "rm", "-rq", "--cached", ".")
    git(repository.root, "commit", "-q", "-m", "x", "--allow-empty")
    assert "none of these pairs is there" in run(repository, "--against", "HEAD").stderr
    assert_usage(run(repository, "--against", "HEAD", "--profile"), "--against goes without")
