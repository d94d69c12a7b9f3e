"""How many ranks a pair has here, and what stands in the way of starting them."""

from pathlib import Path
from typing import Any

import pytest
from synthetic_run import host

from common.python.base.machine import Gpu, Machine
from common.python.corpus.discovery import Pair, Variant
from common.python.corpus.targets import Folder
from common.python.report.listing import print_list
from common.python.requirements import Requirements, needs
from common.python.run.variant_status import assign
from common.python.workers.launch import ONE_HOST, Launch


def pair_on(gpus: int, isolated: bool = False, required: Requirements | None = None) -> Pair:
    def variant(role: Any) -> Variant:
        kinds: Any = ("PyTorch",)
        path = Path(f"{role}_x.py")
        return Variant(path.stem, role, role, path, Path(), f"ch04.{path.stem}", "It adds.", kinds, required or needs())

    literals = {"gpus": gpus, "isolated": isolated}
    return Pair(Folder(Path("ch04"), "ch04"), "x", [variant("baseline"), variant("optimized")], literals)


def machine_with(gpus: int) -> Machine:
    return host(*(Gpu("H200", f"GPU-{i}", 90, 139.0) for i in range(gpus)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nnodes": 2}, "--nnodes 2 needs --rdzv-endpoint HOST:PORT"),
        ({"node_rank": 1}, "--node-rank 1 must be below --nnodes 1"),
        ({"rdzv_endpoint": "node0"}, "must be HOST:PORT"),
        ({"rdzv_endpoint": ":29500"}, "must be HOST:PORT"),
        ({"rdzv_endpoint": "node0:http"}, "must be HOST:PORT"),
        ({"rdzv_endpoint": "node0:65536"}, "must be HOST:PORT"),
    ],
)
def test_what_cannot_be_meant_together_is_said_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Launch(**options)


@pytest.mark.parametrize(
    ("launch", "gpus", "found", "reason"),
    [
        (ONE_HOST, 2, 1, "needs 2 GPUs, found 1"),
        (ONE_HOST, 4, 2, "needs 4 GPUs, found 2"),
        (Launch(nproc_per_node=8), 2, 4, "needs 8 GPUs, found 4"),
        (Launch(nproc_per_node=1), 2, 4, "needs 2 ranks, --nproc-per-node 1 gives 1"),
        (Launch(2, 0, rdzv_endpoint="a:1"), 3, 1, "needs 2 GPUs, found 1"),
        (Launch(2, 0, rdzv_endpoint="a:1"), 1, 4, "runs on one host: leave --nnodes away"),
    ],
)
def test_a_pair_that_cannot_be_started_is_unsupported_with_the_count(
    launch: Launch, gpus: int, found: int, reason: str
) -> None:
    roster = assign(pair_on(gpus), machine_with(found), "H200", launch)
    assert (roster.timed, roster.checked) == ([], [])
    assert {(row.status, row.reason) for row in roster.result.variants} == {("unsupported", reason)}


def test_list_says_how_many_gpus_a_pair_needs_and_that_a_cpu_proves_it(capsys: pytest.CaptureFixture[str]) -> None:
    for found, here in ((0, "without a GPU it is proven, not timed"), (1, "needs 2 GPUs, found 1"), (2, "yes")):
        print_list([pair_on(2)], machine_with(found))
        for line in capsys.readouterr().out.splitlines():
            assert line.split("\t")[3:5] == ["2 GPUs", here]
