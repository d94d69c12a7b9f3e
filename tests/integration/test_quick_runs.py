"""A quick run takes a note in place of the proof at `test` size, of exactly what was proven; a default run proves."""

from dataclasses import replace

import pytest
from small_tree import HONEST, Tree, row

from common.python.base.results import PairResult
from common.python.workers.launch import Launch

NOTED = "--quick: not proven at test size again; proven there at "
FLAWED = """
    from pathlib import Path

    def prepare(a):
        factor = 2.01 if Path({flag!r}).exists() else 2

        def step():
            return a * factor

        return step
"""


@pytest.fixture
def proven(tree: Tree) -> Tree:
    """A tree whose one pair a default run has proven."""
    tree.pair("ch01:x")
    run(tree)
    return tree


def run(tree: Tree, quick: bool = False, **options: object) -> PairResult:
    tree.run("ch1", quick=quick, **options)
    return tree.result("ch01:x")


def sizes(result: PairResult) -> set[str]:
    return {proof.size for variant in result.variants for proof in variant.proofs}


def test_a_quick_run_proves_at_the_timed_size_alone_and_says_so(proven: Tree) -> None:
    result = run(proven, quick=True)
    assert (result.status, sizes(result)) == ("measured", {"cpu"})
    assert len([note for note in result.notes if note.startswith(NOTED)]) == 1
    assert {proof.when for proof in row(result, "optimized_x").proofs} >= {"before timing", "after timing"}


def test_a_default_run_proves_at_both_sizes_whatever_is_noted(proven: Tree) -> None:
    result = run(proven)
    assert sizes(result) == {"test", "cpu"}
    assert not any(note.startswith(NOTED) for note in result.notes)


def test_the_first_quick_run_proves_and_notes_it(tree: Tree) -> None:
    tree.pair("ch01:x")
    assert [sizes(run(tree, quick=True)) for _ in range(2)] == [{"test", "cpu"}, {"cpu"}]


@pytest.mark.parametrize("file", ["baseline_x.py", "optimized_x.py"])
def test_what_has_changed_is_proven_again(file: str, proven: Tree) -> None:
    path = proven.root / "ch01" / file
    path.write_text(path.read_text() + "\nFURTHER = 1\n")
    assert sizes(run(proven, quick=True)) == {"test", "cpu"}
    assert sizes(run(proven, quick=True)) == {"cpu"}


def test_a_file_that_joined_the_pair_is_proven(proven: Tree) -> None:
    proven.pair("ch01:x", optimized=HONEST, padded=HONEST)
    assert sizes(run(proven, quick=True)) == {"test", "cpu"}


def test_a_fault_takes_the_note_away(tree: Tree) -> None:
    flag = tree.root / "flag"
    tree.pair("ch01:x", optimized=FLAWED.format(flag=str(flag)))
    assert run(tree).status == "measured"
    flag.touch()
    assert run(tree, quick=True).verdict == "invalid", "it is proven at the size that is timed"
    flag.unlink()
    assert sizes(run(tree, quick=True)) == {"test", "cpu"}


def test_what_failed_is_not_noted(tree: Tree) -> None:
    flag = tree.root / "flag"
    tree.pair("ch01:x", optimized=FLAWED.format(flag=str(flag)))
    flag.touch()
    run(tree)
    flag.unlink()
    assert sizes(run(tree, quick=True)) == {"test", "cpu"}


def test_where_no_note_can_be_written_each_run_proves(tree: Tree) -> None:
    tree.pair("ch01:x")
    tree.artifacts.mkdir()
    (tree.artifacts / "proven").touch()
    assert [sizes(run(tree, quick=True)) for _ in range(2)] == [{"test", "cpu"}] * 2


def test_a_note_that_holds_no_time_is_none(proven: Tree) -> None:
    [note] = (proven.artifacts / "proven").iterdir()
    note.write_text("yesterday")
    assert sizes(run(proven, quick=True)) == {"test", "cpu"}


def test_what_is_only_proven_at_test_size_is_proven_each_time(tree: Tree) -> None:
    tree.pair("ch01:x", sizes='{"bench": {"n": 8192}, "test": {"n": 67}}')
    for _ in range(2):
        assert sizes(run(tree, quick=True)) == {"test"}


def test_what_of_a_timed_pair_is_only_proven_is_proven_each_time(tree: Tree) -> None:
    """A rung in Triton, where there is no GPU: timed it is not, so it has no other proof."""
    tree.pair("ch01:x", optimized=HONEST, fused="    import triton\n" + HONEST)
    for _ in range(2):
        result = run(tree, quick=True)
        assert {proof.size for proof in row(result, "optimized_x__fused").proofs} == {"test"}
        assert row(result, "optimized_x").verdict is not None


def test_under_another_setting_it_is_proven(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which may choose other kernels, and so another answer."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # as --reproducible would set it
    tree.pair("ch01:x")
    run(tree)
    assert sizes(run(tree, quick=True, reproducible=True)) == {"test", "cpu"}
    assert sizes(run(tree, quick=True)) == {"cpu"}
    monkeypatch.setenv("TORCH_SOMETHING", "1")
    assert sizes(run(tree, quick=True)) == {"test", "cpu"}


def test_more_ranks_are_another_proof(proven: Tree) -> None:
    places = []
    for ranks in (2, 3, 3):
        suite = proven.open("ch1", quick=True, launch=Launch(nproc_per_node=ranks))
        note = suite._note_name(replace(suite.pairs[0], literals={"gpus": 2}), suite.pairs[0].variants)
        assert note is not None
        places.append(note)
    assert places[0] != places[1] == places[2]
