"""A quick run takes a note in place of the proof at `test` size, of exactly what was proven; a default run proves."""

from dataclasses import replace

import pytest
from small_tree import HONEST, Tree, doing, row

from common.python.base.results import PairResult
from common.python.workers.launch import Launch

NOTED = "--quick: not proven at test size again: an earlier run did"


def run(tree: Tree, quick: bool = False, **options: object) -> PairResult:
    tree.run("ch1", quick=quick, **options)
    return tree.result("ch01:x")


def sizes(result: PairResult) -> set[str]:
    return {proof.size for variant in result.variants for proof in variant.proofs}


def test_a_quick_run_proves_at_the_timed_size_alone_where_that_at_test_size_is_noted_and_says_so(tree: Tree) -> None:
    tree.pair("ch01:x")
    assert sizes(run(tree, quick=True)) == {"test", "cpu"}, "the first one proves"
    result = run(tree, quick=True)
    assert (result.status, sizes(result)) == ("measured", {"cpu"})
    assert NOTED in result.notes
    assert {proof.when for proof in row(result, "optimized_x").proofs} >= {"before timing", "after timing"}
    source = tree.root / "ch01" / "baseline_x.py"
    source.write_text(source.read_text() + "\nFURTHER = 1\n")
    result = run(tree)
    assert sizes(result) == sizes(run(tree)) == {"test", "cpu"}, "a default run proves, whatever is noted"
    assert NOTED not in result.notes
    assert sizes(run(tree, quick=True)) == {"cpu"}, "and notes it"


def test_a_fault_is_not_noted_and_takes_an_earlier_note_away(tree: Tree) -> None:
    flag = tree.root / "flag"
    tree.pair("ch01:x", optimized=doing(f"import os\nif os.path.exists({str(flag)!r}): return a * 2.01"))
    for _ in range(2):
        flag.touch()
        assert run(tree, quick=True).verdict == "invalid", "it is proven at the size that is timed"
        flag.unlink()
        assert sizes(run(tree, quick=True)) == {"test", "cpu"}


def test_what_is_only_proven_and_not_timed_is_proven_each_time(tree: Tree) -> None:
    """A pair without a size for a CPU, and a rung in Triton, where there is no GPU: they have no other proof."""
    tree.pair("ch01:x", optimized=HONEST, fused="    import triton\n" + HONEST)
    tree.pair("ch01:y", sizes='{"bench": {"n": 8192}, "test": {"n": 67}}')
    for _ in range(2):
        result = run(tree, quick=True)
        assert {proof.size for proof in row(result, "optimized_x__fused").proofs} == {"test"}
        assert row(result, "optimized_x").verdict is not None
        other = tree.result("ch01:y")
        assert (other.status, sizes(other), other.blocks) == ("proven", {"test"}, [])
        assert other.notes == ["no 'cpu' size: proven at test size only"]


def test_under_another_setting_it_is_proven(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which may choose other kernels, and so another answer."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # as --reproducible would set it
    tree.pair("ch01:x")
    run(tree)
    assert sizes(run(tree, quick=True, reproducible=True)) == {"test", "cpu"}
    assert sizes(run(tree, quick=True)) == {"cpu"}
    monkeypatch.setenv("TORCH_SOMETHING", "1")
    assert sizes(run(tree, quick=True)) == {"test", "cpu"}


def test_more_ranks_are_another_proof(tree: Tree) -> None:
    tree.pair("ch01:x")
    places = []
    for ranks in (2, 3, 3):
        suite = tree.open("ch1", quick=True, launch=Launch(nproc_per_node=ranks))
        note = suite._note(replace(suite.pairs[0], literals={"gpus": 2}), suite.pairs[0].variants)
        assert note is not None
        places.append(note)
    assert places[0] != places[1] == places[2]
