"""How many ranks a pair has here, and what stands in the way of starting them."""

import multiprocessing
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
from common.python.workers.distributed import _await_all, merge
from common.python.workers.launch import ONE_HOST, Launch
from common.python.workers.worker_status import StatusBoard


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


# What several ranks answer becomes one answer: the slowest rank's times, the worst of all.

SAMPLE = {"variant": "baseline_x", "device_us": None, "host_us": 3.0}


@pytest.mark.parametrize(
    ("answers", "one"),
    [
        ([1.5, 2.5, 2.0], 2.5),
        ([False, True], True),
        ([None, 3], 3),
        ([None, None], None),
        (["rank 0's", "rank 1's"], "rank 0's"),
        ([None, "rank 1's"], "rank 1's"),
        (
            [[SAMPLE | {"wall_us": 10.0}, SAMPLE | {"wall_us": 30.0}], [SAMPLE | {"wall_us": 20.0}] * 2],
            [SAMPLE | {"wall_us": 20.0}, SAMPLE | {"wall_us": 30.0}],
        ),
        ([["zeros"], ["zeros", "5% scale"]], ["zeros", "5% scale"]),
        ([[], []], []),
        (
            [{"failures": {}, "gpus": 2}, {"failures": {"optimized_x": "no"}, "gpus": 2}],
            {"failures": {"optimized_x": "no"}, "gpus": 2},
        ),
    ],
)
def test_each_number_is_the_largest_and_each_text_the_first(answers: list[Any], one: Any) -> None:
    assert merge(answers) == one


def rank(board: StatusBoard, line: int) -> None:
    board.say(line, "workload", "start")
    _await_all(board)


@pytest.mark.filterwarnings("error::ResourceWarning", "error::pytest.PytestUnraisableExceptionWarning")
def test_no_rank_goes_on_before_the_last_was_forked(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    board = StatusBoard(tmp_path / "state", tmp_path / "log", ranks=3)
    board.say(0, "workload", "start")
    ranks = [multiprocessing.get_context("fork").Process(target=rank, args=(board, line)) for line in board.ranks]
    for process in ranks[:2]:
        process.start()
    for process in ranks[:2]:
        process.join(0.2)
    assert [process.exitcode for process in ranks[:2]] == [None, None]
    ranks[2].start()
    for process in ranks:
        process.join(10)
    assert [process.exitcode for process in ranks] == [0, 0, 0]
