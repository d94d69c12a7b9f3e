"""What several ranks answer becomes one answer: the slowest rank's times, the worst of all."""

import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from common.python.workers.distributed import _await_all, merge
from common.python.workers.worker_status import Board

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


def rank(board: Board, line: int) -> None:
    board.say(line, "workload", "start")
    _await_all(board)


def test_no_rank_goes_on_before_the_last_was_forked(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    board = Board(tmp_path / "state", tmp_path / "log", ranks=3)
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
