"""One suite of small pairs, honest and broken: what each session finds stands in its row, and only there."""

import re
from typing import Any

import pytest
from small_tree import HONEST, NOTE_PROCESS, WRONG, Tree, doing, row

from common.python.base.results import CONTROL, PairResult
from common.python.corpus.discovery import Pair
from common.python.run.session import PROBES, Settings
from common.python.workers.process import Worker
from common.python.workers.worker_pool import WorkerPool

TIMES = {("test", "before timing"), ("cpu", "before timing"), ("cpu", "while timing"), ("cpu", "after timing")}
# A stand-in for a full GPU: at `cpu` size there is room for the buffers of one variant. Buffers go with their step.
ONE_AT_A_TIME = """
    import weakref

    class Buffer:
        pass

    alive = workload.__dict__.setdefault("buffers", weakref.WeakSet())

    def prepare(a):
        if alive and a.numel() > 1000:
            raise torch.OutOfMemoryError("no room beside another variant")
        buffer = Buffer()
        alive.add(buffer)

        def step():
            return a * 2 if buffer else None

        return step
"""
FOREIGN = f"""
    from ch01.baseline_honest import workload as workload
    {HONEST}
"""
NEVER = """
    def prepare(a):
        raise torch.OutOfMemoryError("too large even alone")
"""
IN_PLACE = """
    def prepare(a, b):
        def step():
            return a.mul_(0.5).add_(b)

        return step
"""
TRITON = '''"""One program per block of elements."""
import torch
import triton
import triton.language as tl
from ch01.baseline_triton import workload as workload

@triton.jit
def scale(a, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(a + at, mask=at < n) * 2, mask=at < n)

def prepare(a):
    out = torch.empty_like(a)
    def step():
        scale[(triton.cdiv(a.numel(), 64),)](a, out, a.numel(), BLOCK=64)
        return out
    return step
'''

METERED = """
    from common.python.workload import Metered

    def prepare(a):
        calls = []

        def step():
            calls.append(1)
            return a * 2

        return Metered(step, lambda: {"calls so far": len(calls), "longest ms": 0.5})
"""
COMPILED = """
    from common.python.workload import Metered

    def prepare(a):
        compiled = torch.compile(lambda: a * 2, backend="eager", dynamic=False)
        return Metered(lambda: compiled(), lambda: {"longest ms": 0.25})
"""


def write_pairs(tree: Tree) -> None:
    tree.pair("ch01:honest", optimized=doing("print('a word from the step')"), other=HONEST)
    tree.pair("ch01:some_wrong", optimized=HONEST, wrong=WRONG, raises=doing("raise ValueError('no luck')"))
    tree.pair("ch01:wrong_when_large", optimized=doing("if a.numel() > 1000: return a * 2.01"))
    tree.pair("ch01:wrong_baseline", WRONG, optimized=HONEST)
    tree.pair("ch01:wrong_later", optimized=doing("a.calls = getattr(a, 'calls', 0) + 1\nif a.calls > 9: return a * 3"))
    tree.pair("ch01:foreign", optimized=HONEST, own=FOREIGN)
    tree.pair("ch01:syntax_first", "\ndef prepare(a:\n    pass\n", optimized=HONEST)
    tree.pair("ch01:isolated", fields="isolated=True,", **noting(tree, "isolated"))
    tree.pair("ch01:together", **noting(tree, "together"))
    tree.pair("ch01:crowded", ONE_AT_A_TIME, optimized=ONE_AT_A_TIME)
    tree.pair("ch01:too_large", optimized=HONEST, huge=NEVER)
    state = {"inputs": '{"a": draw.normal(n), "b": draw.normal(n)}', "reference": "lambda a, b: a.mul_(0.5).add_(b)"}
    tree.pair("ch01:mutates", IN_PLACE, fields='mutates=("a",),', optimized=IN_PLACE, **state)
    tree.pair("ch01:triton", optimized=HONEST)
    tree.file("ch01", "optimized_triton", TRITON)
    tree.file("ch01", "optimized_triton__wrong", TRITON.replace("* 2,", "* 3,"))
    tree.pair("ch01:told", optimized=METERED, compiled=COMPILED)
    tree.pair("ch01:nan", optimized=METERED.replace("0.5", "float('nan')"))
    tree.file("ch01", "baseline_no_workload", f'"""No problem stated."""\n{HONEST}'.replace("\n    ", "\n"))
    tree.file("ch01", "optimized_no_workload", Tree.opening("ch01", "no_workload", "optimized"))
    tree.file("ch01", "optimized_orphan", Tree.opening("ch01", "orphan", "optimized"))
    tree.file("ch01", "optimized_orphans", Tree.opening("ch01", "orphans", "optimized"))
    tree.file("ch01", "optimized_orphans__second", Tree.opening("ch01", "orphans", "second"))


def noting(tree: Tree, name: str) -> dict[str, str]:
    return {who: NOTE_PROCESS.format(file=str(tree.root / f"{name}.{who}")) for who in ("baseline", "optimized")}


def noted(tree: Tree, name: str, who: str) -> set[int]:
    """The processes in which a variant was prepared."""
    return {int(pid) for pid in (tree.root / f"{name}.{who}").read_text().split()}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    tree = Tree(tmp_path_factory.mktemp("session"))
    write_pairs(tree)
    tree.run("ch01")
    return tree


def assert_measured(result: PairResult, stem: str) -> None:
    """It has times. That the machine was too noisy for a ratio, as it may be, is no fault here."""
    found = row(result, stem)
    assert found.status == "measured", found.reason or result.reason
    assert (found.reason is None) == (found.verdict != "too noisy"), found.reason
    assert found.wall.n >= 2
    assert {(proof.size, proof.when) for proof in found.proofs} == TIMES
    assert all(proof.reason is None for proof in found.proofs)


def assert_refused(result: PairResult, stem: str, *words: str) -> None:
    found = row(result, stem)
    assert found.status == "failed"
    assert found.speedup is None
    for word in words:
        assert re.search(word, found.reason or ""), found.reason


def test_an_honest_pair_is_proven_at_both_sizes_and_measured_with_a_control(done: Tree) -> None:
    result = done.result("ch01:honest")
    assert result.status == "measured"
    assert (result.size, result.shape, result.clock, result.device) == ("cpu", {"n": 4096}, "end_to_end", "cpu")
    for stem in ("baseline_honest", "optimized_honest", "optimized_honest__other"):
        assert_measured(result, stem)
    assert result.control.rounds == 3
    assert result.floor_us > 0
    assert row(result, "optimized_honest").why is not None
    counts = {stem: len(row(result, stem).proofs) for stem in ("baseline_honest", "optimized_honest")}
    assert counts["baseline_honest"] == counts["optimized_honest"]  # the control, whose row is the baseline's, has none


def test_every_block_holds_each_variant_twice_and_mirrored(done: Tree) -> None:
    blocks = done.result("ch01:honest").blocks
    assert [block.round for block in blocks] == [0, 1, 2]
    everybody = {"baseline_honest", "optimized_honest", "optimized_honest__other", CONTROL}
    orders = [[sample.variant for sample in block.samples] for block in blocks]
    for order in orders:
        assert order == order[::-1]
        assert {name: order.count(name) for name in order} == dict.fromkeys(everybody, 2)


def test_what_a_variant_prints_is_in_the_log(done: Tree) -> None:
    result = done.result("ch01:honest")
    assert "a word from the step" in (done.folder / "ch01_honest" / "logs" / "worker0.log").read_text()
    assert "a word from the step" in result.log


def test_a_wrong_rung_and_a_raising_one_fail_alone(done: Tree) -> None:
    result = done.result("ch01:some_wrong")
    assert result.status == "measured"
    assert_measured(result, "baseline_some_wrong")
    assert_measured(result, "optimized_some_wrong")
    assert_refused(result, "optimized_some_wrong__wrong", "wrong at test size, before timing")
    assert row(result, "optimized_some_wrong__wrong").verdict == "invalid"
    sampled = {sample.variant for block in result.blocks for sample in block.samples}
    assert sampled == {"baseline_some_wrong", "optimized_some_wrong", CONTROL}
    assert_refused(result, "optimized_some_wrong__raises", "ValueError at optimized_some_wrong__raises.py", "no luck")


LOST = {  # pairs that fail as a whole: their verdict, the file whose fault it is, and what the reason says
    "wrong_when_large": ("invalid", "optimized_wrong_when_large", "wrong at cpu size, before timing"),
    "wrong_later": ("invalid", "optimized_wrong_later", "wrong at cpu size, (while|after) timing"),
    "wrong_baseline": ("invalid", "baseline_wrong_baseline", "wrong at test size"),
    "syntax_first": (None, "baseline_syntax_first", r"ch01/baseline_syntax_first\.py:"),
    "no_workload": (None, "baseline_no_workload", r"the baseline has no `workload = Workload\(\.\.\.\)`"),
    "orphans": (None, None, r"^no baseline_orphans\.py$"),
    "orphan": (None, None, "^(?!.*<frozen).*baseline_orphan"),
    "nan": (None, "optimized_nan", "longest ms"),
}


@pytest.mark.parametrize("name", LOST)
def test_a_pair_without_a_sound_baseline_or_headline_fails_with_its_reason_and_has_no_speedup(
    name: str, done: Tree
) -> None:
    result, (verdict, stem, reason) = done.result(f"ch01:{name}"), LOST[name]
    assert (result.status, result.verdict) == ("failed", verdict)
    assert re.search(reason, result.reason or ""), result.reason
    assert [one.status for one in result.variants if one.name == stem] == ["failed"] * bool(stem)
    assert (result.blocks == []) == (name not in ("wrong_later", "nan"))
    assert not any(variant.speedup for variant in result.variants)


@pytest.mark.parametrize(
    ("name", "rung", "reason"),
    [
        ("foreign", "own", "its workload is not its baseline's: import it from there"),
        ("too_large", "huge", "OutOfMemoryError .*too large even alone"),
    ],
)
def test_a_rung_that_cannot_run_fails_alone(name: str, rung: str, reason: str, done: Tree) -> None:
    result = done.result(f"ch01:{name}")
    assert_refused(result, f"optimized_{name}__{rung}", reason)
    assert_measured(result, f"optimized_{name}")


def test_variants_share_a_process_unless_the_workload_is_isolated(done: Tree) -> None:
    assert_measured(done.result("ch01:together"), "optimized_together")
    baseline, optimized = noted(done, "together", "baseline"), noted(done, "together", "optimized")
    assert baseline == optimized
    assert len(baseline) == 2, "one proves and one times"
    assert_measured(done.result("ch01:isolated"), "optimized_isolated")
    baseline, optimized = noted(done, "isolated", "baseline"), noted(done, "isolated", "optimized")
    assert len(baseline) == 3, "one proves, one times, and one is the control's"
    assert len(optimized) == 2
    assert not baseline & optimized


def test_variants_that_do_not_fit_together_run_alone_and_the_note_says_so(done: Tree) -> None:
    result = done.result("ch01:crowded")
    assert any("do not fit in memory together" in note for note in result.notes)
    for stem in ("baseline_crowded", "optimized_crowded"):
        found = row(result, stem)
        assert found.status == "measured", found.reason
        assert found.wall is not None
        assert {("test", "before timing"), ("cpu", "before timing"), ("cpu", "after timing")} <= {
            (proof.size, proof.when) for proof in found.proofs
        }
    assert result.control is not None
    for block in result.blocks:
        order = [sample.variant for sample in block.samples]
        assert order == order[::-1]


def test_a_step_that_writes_its_inputs_is_timed_one_at_a_time(done: Tree) -> None:
    result = done.result("ch01:mutates")
    assert_measured(result, "optimized_mutates")
    assert {block.steps for block in result.blocks} == {1}


def test_triton_is_proven_in_its_interpreter_and_not_timed(done: Tree) -> None:
    result = done.result("ch01:triton")
    assert result.status == "proven"
    found = row(result, "optimized_triton")
    assert (found.status, found.reason) == ("proven", "proven in Triton's interpreter at test size; not timed")
    assert {(proof.size, proof.when) for proof in found.proofs} == {("test", "before timing")}
    assert result.blocks == []
    assert_refused(result, "optimized_triton__wrong", "wrong at test size")


def test_a_single_file_runs_alone(done: Tree) -> None:
    alone = Tree(done.root)
    summary = alone.run("ch01/optimized_honest.py")
    result = alone.result("ch01:honest")
    assert [variant.name for variant in summary.pairs[0].variants] == ["optimized_honest"]
    assert_measured(result, "optimized_honest")
    assert row(result, "optimized_honest").speedup is None
    assert result.control is None
    assert {sample.variant for block in result.blocks for sample in block.samples} == {"optimized_honest"}


def test_what_a_step_tells_beside_its_time_is_in_the_result(done: Tree) -> None:
    result = done.result("ch01:told")
    told = {name: row(result, name).why for name in ("baseline_told", "optimized_told", "optimized_told__compiled")}
    metrics = {name: why.metrics for name, why in told.items() if why}
    assert metrics["baseline_told"] == {}
    assert metrics["optimized_told"]["longest ms"] == 0.5
    assert metrics["optimized_told"]["calls so far"] > 6
    compiled = metrics["optimized_told__compiled"]
    assert (compiled["graphs"], compiled["graph breaks"], compiled["recompilations"]) == (1, 0, 0)
    assert compiled["longest ms"] == 0.25


def test_cold_start_times_each_variant_in_a_fresh_process_of_its_own(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    hire, fresh = Settings.hire, list[bool]()

    def noted_hire(settings: Settings, pair: Pair, index: int, own: bool, name: str) -> Worker:
        fresh.append(own)
        return hire(settings, pair, index)  # a fork all the same: an interpreter imports torch for seconds

    monkeypatch.setattr(Settings, "hire", noted_hire)
    tree.pair("ch01:together", **noting(tree, "together"))
    tree.run("ch01", cold_start=True, iterations=1)
    assert row(tree.result("ch01:together"), "optimized_together").status == "measured"
    baseline, optimized = noted(tree, "together", "baseline"), noted(tree, "together", "optimized")
    assert len(baseline & optimized) == 1, "which proves them at test size"
    assert (len(baseline), len(optimized)) == (3, 2)
    assert fresh == [False, True, True, True]


def test_reproducible_runs_draw_the_same_inputs_and_name_the_ops_that_refuse(tree: Tree) -> None:
    drawn = tree.root / "drawn"
    put = doing(f"""
        from pathlib import Path
        with Path({str(drawn)!r}).open("a") as file:
            file.write(f"{{float(a.double().sum())!r}} ")
        torch.zeros(3).put_(torch.tensor([1]), torch.tensor([2.0]))
        """)
    tree.pair("ch01:scatter", optimized=put)
    seen = []
    for _ in range(2):
        drawn.write_text("")
        tree.run("ch01", reproducible=True, seed=None, iterations=2)
        seen.append(drawn.read_text().split())
    assert len(seen[0]) > 3
    assert set(seen[0]) == set(seen[1])
    notes = [note for note in tree.result("ch01:scatter").notes if note.startswith("not deterministic: ")]
    assert len(notes) == 1
    assert "put_" in notes[0]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each block, whether samples of it were proven while they were timed."""
    found, block = list[bool](), WorkerPool.block

    def noted(pool: WorkerPool, order: list[str], count: int, probes: list[int]) -> dict[str, Any]:
        found.append(bool(probes))
        return block(pool, order, count, probes)

    monkeypatch.setattr(WorkerPool, "block", noted)
    return found


def test_samples_are_proven_anywhere_in_a_round_and_in_every_session(tree: Tree, asked: list[bool]) -> None:
    slow = doing("import time; time.sleep(0.001)")
    tree.pair("ch01:a", slow, optimized=slow)
    places = list[int]()
    for seed in range(3):
        asked.clear()
        assert tree.run("ch01:a", iterations=None, warmup=None, budget_s=0.1, seed=seed).pairs[0].status == "measured"
        rounds = [block.round for block in tree.result("ch01:a").blocks]
        found = [rounds[:index].count(rounds[index]) for index, probed in enumerate(asked) if probed]
        assert len(found) == PROBES
        assert len({rounds[index] for index, probed in enumerate(asked) if probed}) == PROBES, "each in its own round"
        places += found
    assert max(places) > 0, "none but the first block of a round was ever proven"
