"""What was proven on a CPU is proven again only when something that it depends on has changed."""

from pathlib import Path

import pytest
from small_tree import Tree, cli

from common.python.base.machine import machine
from common.python.corpus.discovery import Pair
from common.python.run import proof_cache
from common.python.verify import sweep
from common.python.verify.static_checks import Finding

NOTED = "1 pair unchanged since last proven here: --again proves all once more"


@pytest.fixture
def proven(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A tree with one sound pair and a helper that it imports; the keys of the pairs that were executed."""
    tree.pair("ch01:x")
    (tree.root / "ch01" / "helper.py").write_text("FACTOR = 2\n")
    optimized = tree.root / "ch01" / "optimized_x.py"
    optimized.write_text(optimized.read_text().replace("import torch\n", "import torch\nimport ch01.helper\n", 1))
    executed: list[str] = []

    def execute(pair: Pair, *how: object) -> list[Finding]:
        """Without a worker: what is tested is whether it is called."""
        executed.append(pair.key)
        wrong = "* 3" in (tree.root / "ch01" / "optimized_x.py").read_text()
        problems = [Finding("proofs", "problem", "wrong", "ch01/optimized_x.py")] * wrong
        return [*[Finding("imports", "passed")] * 2, *[Finding("proofs", "passed")] * (2 - wrong), *problems]

    monkeypatch.setattr(sweep, "execute_pair", execute)
    monkeypatch.setattr(sweep, "open_machine", lambda *how: (machine(), {"device": "cpu"}))
    monkeypatch.setattr(sweep, "build_folder", lambda root: tmp_path / "build")
    return executed


def verify(tree: Tree, *words: str) -> tuple[int, str]:
    proof_cache._library.cache_clear()  # a command reads it once
    done = cli("verify", "--no-build", "--root", tree.root, *words)
    return done.returncode, done.stdout


def counts(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(("imports", "proofs"))]


def test_what_has_not_changed_is_counted_from_its_note_and_said(tree: Tree, proven: list[str]) -> None:
    (code, first), again = verify(tree), verify(tree)
    assert (code, again[0], proven) == (0, 0, ["ch01:x"])
    assert counts(first) == counts(again[1])
    assert NOTED not in first
    assert NOTED in again[1]
    assert "\n1 pair in " in first


def test_a_problem_that_only_the_second_time_shows_takes_the_note_away(
    tree: Tree, proven: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    verify(tree)
    with monkeypatch.context() as flaky:
        problem = Finding("proofs", "problem", "wrong now and then", "ch01/optimized_x.py")
        flaky.setattr(sweep, "execute_pair", lambda *how: [problem])
        assert verify(tree, "--again")[0] == 1
    code, text = verify(tree)
    assert NOTED not in text
    assert (code, proven) == (0, ["ch01:x"] * 2)


@pytest.mark.parametrize(
    "file", ["optimized_x.py", "baseline_x.py", "helper.py", "optimized_x__joins.py", "harness", "library"]
)
def test_a_change_of_a_file_or_of_what_it_imports_is_proven(
    tree: Tree, proven: list[str], file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof_cache, "ROOT", tmp_path)
    (tmp_path / "common").mkdir(exist_ok=True)
    verify(tree)
    path = tmp_path / "common" / "proof.cuh" if file == "harness" else tree.root / "ch01" / file
    before = path if path.exists() else tree.root / "ch01" / "optimized_x.py"
    if file == "library":
        monkeypatch.setattr(proof_cache, "versions", lambda: {"torch": "another"})
    else:
        path.write_text(before.read_text() + "\nx = 1\n")
    assert verify(tree)[0] == 0
    assert proven == ["ch01:x"] * 2


def test_what_could_not_run_then_and_can_now_is_proven(
    tree: Tree, proven: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as lacking:
        lacking.setattr(sweep, "missing", lambda pair, variant, machine: ["needs the module x"])
        verify(tree)
    code, text = verify(tree)
    assert (code, proven) == (0, ["ch01:x"] * 2)
    assert "needs the module x" not in text


def test_half_a_note_is_none(tree: Tree, proven: list[str], tmp_path: Path) -> None:
    verify(tree)
    [note] = (tmp_path / "build" / "verified").iterdir()
    note.write_text(note.read_text()[:-9])
    assert verify(tree)[0] == 0
    assert proven == ["ch01:x"] * 2


def test_what_changes_while_it_is_proven_has_no_note(
    tree: Tree, proven: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    helper, executing = tree.root / "ch01" / "helper.py", sweep.execute_pair
    text = helper.read_text()

    def execute(*how: object) -> list[Finding]:
        helper.write_text("FACTOR = 3\n")
        return executing(*how)  # type: ignore[arg-type]

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(sweep, "execute_pair", execute)
        verify(tree)
    helper.write_text(text)  # which nobody has proven
    assert NOTED not in verify(tree)[1]
    assert proven == ["ch01:x"] * 2


def test_where_no_notes_can_be_written_all_is_proven_each_time(
    tree: Tree, proven: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(sweep, "build_folder", lambda root: tmp_path / "file")
    assert (verify(tree)[0], verify(tree)[0], proven) == (0, 0, ["ch01:x"] * 2)


def test_on_a_gpu_nothing_is_taken_from_notes(tree: Tree, proven: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"device": "NVIDIA H200", "uuid": "GPU-1"}
    monkeypatch.setattr(sweep, "open_machine", lambda *how: (machine(), found))
    monkeypatch.setattr(sweep.Place, "jobs", 1)
    for _ in range(2):
        assert NOTED not in verify(tree)[1]
    assert proven == ["ch01:x"] * 2
