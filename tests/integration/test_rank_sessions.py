"""Pairs on several GPUs, on two gloo ranks of this CPU: what is right is proven and timed, whatever goes wrong ends."""

import json
import os
import re
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from small_tree import Tree, late_s, nothing_left, row

from common.python.base.results import Cost, PairResult, Telemetry, VariantResult
from common.python.corpus.discovery import Pair, find_pairs
from common.python.run.options import Options
from common.python.run.session import Session, Settings
from common.python.run.suite import open_suite
from common.python.run.variant_status import Roster, new_result
from common.python.workers.launch import Launch

FAULTS = {  # what rank 1 does before the sum, what the reason says, and what stands in the line that it names
    "raises": (
        "raise ValueError('rank 1 has no luck')",
        r"ValueError at optimized_raises.py:(\d+): rank 1 has no luck, on rank 1",
        "raise ValueError",
    ),
    "dies": (
        "__import__('ctypes').string_at(0)",
        r"rank 1 was killed by SIGSEGV during its first step at optimized_dies.py:(\d+)",
        "string_at(0)",
    ),
    "exits": ("__import__('os')._exit(0)", r"rank 1 exited with code 0 during its first step()", None),
    "hangs": (
        "__import__('time').sleep(600)",
        r"no answer within \d+ s during its first step: rank 0 is at .*, rank 1 is at optimized_hangs.py:(\d+)",
        "sleep(600)",
    ),
    "skips_collective": (
        "return out",
        r"first step: rank 0 is at optimized_skips_collective.py:(\d+) in all_reduce, rank 1 has done its part",
        "dist.all_reduce(out)",
    ),
}
REFUSED = {
    "one_rank": r"relative error 1\.00e-03, .*, on rank 1",
    "local_copy": "relative error",
    "low_precision": r"relative error \d\.\d+e-03",
}
SUM = """
    import torch.distributed as dist

    def prepare({inputs}):
        def step():
            out = {out}
            {before}
            dist.all_reduce(out)
            {after}
            return {answer}

        return step
"""
GATHER = """
    import torch.distributed as dist

    def prepare(a):
        def step():
            parts = {parts}
            everyone = [torch.empty_like(parts) for _ in range(dist.get_world_size())]
            dist.all_gather(everyone, parts)
            return {answer}

        return step
"""


def opened(pair: Pair, timed: bool, settings: Settings) -> Session:
    variants = list(pair.variants)
    return Session(pair, Roster(new_result(pair, "cpu"), *([variants, []] if timed else [[], variants])), settings)


def settings_for(pair: Pair, folder: Path, **changed: Any) -> Settings:
    """Two blocks in one round and no warm-up, unless told otherwise."""
    plain = Settings(folder=folder, scratch=folder / "scratch", size="cpu", seed=3, device="cpu")
    return replace(plain, **{"iterations": 2, "warmup": 0, "time_limit_s": 60.0, **changed})


def session(pair: Pair, folder: Path, **changed: Any) -> PairResult:
    """Prove and time a pair on gloo ranks, which `run` only proves where there is no GPU."""
    return opened(pair, True, settings_for(pair, folder, **changed)).measure()


def only_pair(tree: Tree, **bodies: str) -> Pair:
    extra = {"reference": "lambda rank, a: sum(a)", "fields": "gpus=2", **bodies}
    tree.pair("ch01:x", **extra)
    [pair] = find_pairs(tree.root)
    return pair


def summing(**changes: str) -> str:
    """The body of a variant that sums over ranks, but for these parts of it."""
    plain = {"inputs": "a", "out": "a.clone()", "before": "pass", "after": "pass", "answer": "out"}
    return SUM.format(**plain | changes)


CHEATS = {  # what each fakes stands in REFUSED; an honest twin does as much in another way
    "one_rank": summing(after="if dist.get_rank() == 1: out.mul_(1.001)"),
    "one_rank_honest": summing(after="if dist.get_rank() == 1: out.mul_(2.0).mul_(0.5)"),
    "local_copy": summing(before="return a * dist.get_world_size()"),  # right where all ranks are given the same
    "local_copy_honest": GATHER.format(parts="a", answer="sum(everyone)"),
    "low_precision": summing(out="a.bfloat16()", answer="out.float()"),
    "low_precision_honest": GATHER.format(  # three bfloat16 whose sum each number is, to the last bit but one
        parts="torch.stack([high := a.bfloat16(), middle := (a - high).bfloat16(), (a - high - middle).bfloat16()])",
        answer="torch.stack(everyone).double().sum(dim=(0, 1)).float()",
    ),
}


def lay_ranks(root: Path) -> dict[str, Pair]:
    """Pairs on two ranks: one that is sound, those that fail on rank 1, and one whose rungs cheat or are honest."""
    tree = Tree(root)
    stated = {
        "reference": "lambda rank, a: sum(a)",
        "cost": "lambda n: Cost(nvlink_bytes=4 * n)",
        "sizes": '{"bench": {"n": 1 << 22}, "cpu": {"n": 1 << 12}, "test": {"n": 1021}}',
        "fields": "gpus=2",
        "baseline": summing(),
    }
    for name, (fault, *_) in FAULTS.items():
        tree.pair(f"ch01:{name}", **stated, optimized=summing(before=f"if dist.get_rank() == 1: {fault}"))
    tree.pair("ch02:healthy", **stated, optimized=summing())
    tree.pair("ch02:cheats", **stated, **CHEATS)
    return {pair.name: pair for pair in find_pairs(root)}


@pytest.fixture(scope="module")
def laid(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    return lay_ranks(tmp_path_factory.mktemp("ranks"))


def sound(result: PairResult) -> bool:
    """Whether all were timed and every proof passed; what the times are is another matter on a busy host."""
    proofs = [proof.reason for variant in result.variants for proof in variant.proofs]
    return {variant.status for variant in result.variants} == {"measured"} and set(proofs) == {None}


def rows_of(result: PairResult) -> dict[str, VariantResult]:
    return {variant.label: variant for variant in result.variants}


@pytest.fixture(scope="module")
def healthy(laid: dict[str, Pair], tmp_path_factory: pytest.TempPathFactory) -> tuple[PairResult, Path, float]:
    """A sound pair's session, its folder, and the seconds that it took."""
    folder, started = tmp_path_factory.mktemp("healthy"), time.monotonic()
    result = session(laid["healthy"], folder, iterations=6)
    return result, folder, time.monotonic() - started


def test_a_sound_pair_is_proven_before_while_and_after_it_is_timed(healthy: tuple[PairResult, Path, float]) -> None:
    result, folder, took_s = healthy
    assert sound(result), result.reason
    assert {"start", "prepare", "proof", "samples"} <= set(result.seconds)
    assert min(result.seconds.values()) >= 0  # the phases of the start are parts of it, each told once
    assert 0.7 * took_s < sum(result.seconds.values()) < took_s
    for variant in result.variants:
        assert {proof.when for proof in variant.proofs} == {"before timing", "while timing", "after timing"}
        assert variant.why is not None
    assert [len(block.samples) for block in result.blocks] == [6] * len(result.blocks)
    assert len({block.round for block in result.blocks}) == 3
    assert nothing_left()
    assert (folder / "scratch" / "worker0" / "launcher").is_dir()  # and not in a folder that nobody would remove


def test_ranks_find_the_callers_nccl_settings_untouched_and_the_manifest_tells_them(tree: Tree) -> None:
    told = """
        import json, os
        from pathlib import Path

        found = {key: value for key, value in os.environ.items() if key.startswith("NCCL_")}
        Path(f"{__file__}.{os.environ['RANK']}.json").write_text(json.dumps(found))
    """
    only_pair(tree, baseline=summing(), optimized=summing(before=dedent(told).strip().replace("\n", "\n            ")))
    tree.run("ch01:x")
    asked = {key: value for key, value in os.environ.items() if key.startswith("NCCL_")}
    assert asked["NCCL_ALGO"] == "Ring", "as the forkserver began"
    seen = {file.name: json.loads(file.read_text()) for file in (tree.root / "ch01").glob("*.json")}
    assert seen == {f"optimized_x.py.{rank}.json": asked for rank in (0, 1)}
    recorded = json.loads((tree.folder / "manifest.json").read_text())["environment"]
    assert {key: value for key, value in recorded.items() if key.startswith("NCCL_")} == asked


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_one_rank_ends_the_pair_within_its_time_names_the_rank_and_leaves_no_process(
    name: str, laid: dict[str, Pair], healthy: tuple[PairResult, Path, float], tmp_path: Path
) -> None:
    pair, (_, reason, line) = laid[name], FAULTS[name]
    limit_s = max(6.0, 2.0 * healthy[-1])  # enough for two ranks to start and prepare on a busy machine
    hangs = name in ("hangs", "skips_collective")
    started = time.monotonic()
    result = session(pair, tmp_path, time_limit_s=limit_s if hangs else 60.0)
    assert time.monotonic() - started < 13 + limit_s * hangs + late_s()
    assert result.status == "failed"
    found = re.search(reason, result.reason or "")
    assert found, result.reason
    if line is not None:
        assert line in pair.variants[1].path.read_text().splitlines()[int(found[1]) - 1]
    rows = rows_of(result)
    assert (rows["optimized"].status, rows["baseline"].status) == ("failed", "proven")
    assert nothing_left()


def test_the_suite_goes_on_after_a_rank_is_lost(laid: dict[str, Pair], tmp_path: Path) -> None:
    root = laid["raises"].folder.root
    options = Options(["ch01:raises", "ch02:healthy"], root=root, artifacts_dir=tmp_path, seed=0)
    suite = open_suite(options, lambda phase, result: None)
    assert (suite.manifest.options["nnodes"], suite.manifest.topology) == (1, None)
    faulty, healthy = suite.run().pairs
    assert faulty.status == "failed"
    assert (healthy.status, healthy.reason) == ("proven", "proven on 2 gloo ranks at test size; not timed")


def test_each_cheat_is_refused_and_its_honest_twin_accepted(laid: dict[str, Pair], tmp_path: Path) -> None:
    rows = rows_of(session(laid["cheats"], tmp_path))
    assert rows.keys() == {"baseline", *REFUSED, *(f"{name}_honest" for name in REFUSED)}
    for name, reason in REFUSED.items():
        assert rows[name].verdict == "invalid"
        assert re.search(reason, rows[name].reason or ""), rows[name].reason
        for honest in (rows["baseline"], rows[f"{name}_honest"]):
            assert honest.status == "measured"
            assert {proof.reason for proof in honest.proofs} == {None}


def test_a_sample_is_the_slowest_ranks_time(tree: Tree) -> None:
    late = "import time; time.sleep(0.02 * dist.get_rank())"  # after the collective: rank 0 does not wait for it
    metered = "from common.python.workload import Metered; return Metered(step, dict)"  # all ranks call it for these
    own = summing(after=late).replace("return step", metered)
    result = session(only_pair(tree, baseline=summing(), optimized=own), tree.artifacts, time_limit_s=20.0)
    assert result.status == "measured", result.reason
    times = {s.variant: s.wall_us for block in result.blocks for s in block.samples}
    assert times["baseline_x"] is not None
    assert times["optimized_x"] > 20_000 > times["baseline_x"]


def test_ranks_begin_a_sample_together_however_late_one_of_them_was(tree: Tree) -> None:
    """Rank 1 comes late to every sample; were it not met, rank 0's time would hold that wait."""
    late = """
from common.python.proof import ranks
meet = ranks.Ranks.meet
def tardy(self):
    import time
    time.sleep(0.2 * self.rank)
    meet(self)
ranks.Ranks.meet = tardy"""
    pair = only_pair(tree, baseline=summing(), optimized=summing())
    path = pair.variants[0].path
    path.write_text(path.read_text().replace("import torch\n", f"import torch\n{late}\n", 1))
    result = session(pair, tree.artifacts)
    times = [s.wall_us for block in result.blocks for s in block.samples if s.wall_us is not None]
    assert times
    assert sorted(times)[len(times) // 2] < 150_000


OWN = {  # reference, what else the pair states, and the body of its variants
    "outputs that differ in shape": (
        *("lambda rank, a: sum(a)[: 33 + 28 * rank]", {}),
        summing(answer="out[: 33 + 28 * dist.get_rank()]"),
    ),
    "files and frozen inputs of each rank": (
        "lambda rank, a, w, path: 2 * sum(a) + sum(w)",
        {
            "inputs": '(lambda x: {"a": x, "w": draw.normal(n), "path": draw.file("f.bin", x)})(draw.normal(n))',
            "fields": 'gpus=2, frozen=("w",)',
        },
        summing(inputs="a, w, path", out="a + w + torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.float32)"),
    ),
}


@pytest.mark.parametrize("what", OWN)
def test_ranks_may_have_outputs_and_files_of_their_own(what: str, tree: Tree) -> None:
    reference, others, body = OWN[what]
    pair = only_pair(tree, reference=reference, **others, **dict.fromkeys(("baseline", "optimized", "second"), body))
    result = session(pair, tree.artifacts, iterations=6)
    assert sound(result), result.reason


def test_isolated_variants_have_ranks_of_their_own(tree: Tree) -> None:
    pair = only_pair(tree, baseline=summing(), optimized=summing(), fields="gpus=2, isolated=True")
    done = opened(pair, False, settings_for(pair, tree.artifacts, size="cpu")).prove()
    assert (done.status, done.reason) == ("proven", "proven on 2 gloo ranks at test size; not timed")
    assert (tree.artifacts / "logs" / "worker1.rank1.log").exists()


def test_a_pair_that_can_only_be_proven_here_is_not_timed(laid: dict[str, Pair], tmp_path: Path) -> None:
    """As on a CPU with --nnodes, where no phase of proofs goes before."""
    done = opened(laid["healthy"], False, settings_for(laid["healthy"], tmp_path)).measure()
    assert (done.status, done.blocks) == ("proven", [])


def test_a_number_of_gpus_that_cannot_be_read_from_the_text_is_refused(tree: Tree) -> None:
    pair = only_pair(tree, baseline=summing(), optimized=summing(), fields="gpus=1 + 1")
    result = session(pair, tree.artifacts)
    assert result.status == "failed"
    assert "gpus must stand in the baseline's `workload = Workload(...)` as a number" in (result.reason or "")


def test_more_ranks_can_be_asked_for_than_the_pair_needs(tree: Tree) -> None:
    late, cost = "assert dist.get_world_size() == 3", "lambda n, ranks=2: Cost(launches=ranks)"
    pair = only_pair(tree, baseline=summing(before=late), optimized=summing(), cost=cost)
    result = session(pair, tree.artifacts, launch=Launch(nproc_per_node=3))
    assert (sound(result), result.cost) == (True, Cost(launches=3)), result.reason
    assert (tree.artifacts / "logs" / "worker0.rank2.log").exists()


def on_two_hosts(tree: Tree, pair: Pair) -> tuple[PairResult, PairResult]:
    """What the host that leads has of the pair, and what the one that follows."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        endpoint = f"localhost:{free.getsockname()[1]}"
    hosts = [Launch(2, node_rank, rdzv_endpoint=endpoint) for node_rank in range(2)]
    there = settings_for(pair, tree.root / "there", launch=hosts[1])
    followed: list[PairResult] = []
    other = threading.Thread(target=lambda: followed.append(opened(pair, False, there).follow()))
    other.start()
    result = session(pair, tree.artifacts, launch=hosts[0])
    other.join()
    return result, followed[0]


def test_two_hosts_share_a_pair_and_the_one_that_follows_says_who_has_the_results(tree: Tree) -> None:
    result, followed = on_two_hosts(tree, only_pair(tree, baseline=summing(), optimized=summing()))
    assert sound(result), result.reason
    assert followed.status == "unsupported"
    assert "node rank 0, which has the results" in (row(followed, "optimized_x").reason or "")
    assert (tree.root / "there" / "logs" / "worker0.rank0.log").exists()


def test_an_endpoint_that_somebody_else_listens_on_is_said(tree: Tree) -> None:
    pair = only_pair(tree, baseline=summing(), optimized=summing())
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        endpoint = f"localhost:{taken.getsockname()[1]}"
        result = session(pair, tree.artifacts, launch=Launch(rdzv_endpoint=endpoint))
    assert result.status == "failed"
    assert re.search("workload: the ranks cannot be started: .*(address|listen)", result.reason or ""), result.reason
    assert "\n" not in (result.reason or "")


def test_a_rank_that_dies_on_another_host_ends_the_pair_on_both(tree: Tree) -> None:
    dying = "import os; '/there/' in os.readlink('/proc/self/fd/1') and os._exit(5)"  # by where its log is
    result, followed = on_two_hosts(tree, only_pair(tree, baseline=summing(), optimized=summing(before=dying)))
    assert result.status == "failed"
    assert followed.status == "failed"
    assert re.search(r"rank \d exited with code 5 during its first step", result.reason or ""), result.reason
    assert "exited with code 5" in (followed.reason or "")
    assert nothing_left()


def test_an_output_that_cannot_be_one_on_one_rank_alone_ends_nobodys_trial_early(tree: Tree) -> None:
    honest, aliasing = summing(answer="a * 1"), summing(answer="a if dist.get_rank() else a * 1")
    pair = only_pair(tree, reference="lambda rank, a: a[rank]", baseline=honest, optimized=aliasing, second=honest)
    result = session(pair, tree.artifacts)
    assert row(result, "optimized_x").reason is not None
    assert "shares memory with the input 'a', on rank 1" in (row(result, "optimized_x").reason or "")
    assert row(result, "optimized_x__second").status == "measured"


class Gauge:
    """As much of a monitor as a session asks for."""

    def __init__(self, mhz: float) -> None:
        self.mhz = mhz
        self.own: set[int] = set()

    def read(self, own: set[int]) -> Telemetry:
        self.own = own
        return Telemetry(sm_mhz=self.mhz, throttle=["hw_slowdown"] if self.mhz < 1000 else [])


def test_every_block_has_the_telemetry_of_each_gpu_and_every_rank_a_trace_of_each_variant(
    laid: dict[str, Pair], tmp_path: Path
) -> None:
    first, second = Gauge(1980.0), Gauge(600.0)
    gauges: Any = {"monitors": (first, second)}
    result = session(laid["healthy"], tmp_path, profile=True, **gauges)
    traces = {path.name for path in (tmp_path / "profiles").iterdir()}  # of the control there is none
    variants = ("baseline_healthy", "optimized_healthy")
    assert traces == {f"{name}.rank{rank}.trace.json" for name in variants for rank in range(2)}
    for block in result.blocks:
        assert [gpu.sm_mhz for gpu in block.gpus] == [1980.0, 600.0]
        assert block.telemetry.sm_mhz == 600.0
        assert block.discarded == "GPU slowed by hw_slowdown"
    assert len(first.own) == 3  # the leader and two ranks, none of which counts as foreign
    assert first.own == second.own
