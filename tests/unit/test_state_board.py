"""What the parent reads when nobody answers: who was at work, on what, and where each rank stands."""

import os
from pathlib import Path

import pytest

from common.python.workers.worker_status import LOG_BYTES, Board


def board(folder: Path, ranks: int) -> Board:
    return Board.blank(folder / "state", folder / "worker0.log", ranks)


def test_a_line_is_read_back_by_whoever_maps_the_file(tmp_path: Path) -> None:
    ours = board(tmp_path, 2)
    theirs = Board(tmp_path / "state", tmp_path / "worker0.log")
    assert theirs.read(1) == ("", "workload", "start", "")
    theirs.say(1, "optimized_x", "prepare", 5)
    assert ours.read(1) == (str(os.getpid()), "optimized_x", "prepare", "5")
    assert ours.read(2).who == "workload"
    assert list(ours.ranks) == [1, 2]


def test_a_worker_alone_is_told_of_with_its_place(tmp_path: Path) -> None:
    ours = board(tmp_path, 0)
    ours.say(0, "optimized_x", "prepare")
    assert ours.whereabouts() == ("optimized_x", "prepare")
    (tmp_path / "worker0.log").write_text('File "/root/ch01/optimized_x.py", line 7 in step\n')
    assert ours.whereabouts() == ("optimized_x", "prepare at optimized_x.py:7")


@pytest.mark.parametrize("line", [0, 2])
def test_the_place_of_a_kernels_assertion_is_what_cuda_wrote_into_a_log(tmp_path: Path, line: int) -> None:
    ours = board(tmp_path, 2)
    assert ours.asserted() == ""
    told = "/root/ch03/optimized_x.cu:10: void twice(const float *, float *, long): block: [0,0,0], thread: [{},0,0]"
    asserted = "".join(f"{told.format(thread)} Assertion `i != 0` failed.\n" for thread in (0, 1))
    ours.log(line).write_text(f"optimized_x.cu:7: a note\n{asserted}")
    assert ours.asserted() == " at optimized_x.cu:10"


def test_of_logs_that_are_too_long_the_start_and_the_end_are_kept_those_of_ranks_too(tmp_path: Path) -> None:
    ours = board(tmp_path, 1)
    for line, log in enumerate((ours.log(0), ours.log(1))):
        log.write_bytes(b"%d begins" % line + b"x" * LOG_BYTES + b"%d ends" % line)
    ours.shorten()
    for line, log in enumerate((ours.log(0), ours.log(1))):
        text = log.read_bytes()
        assert LOG_BYTES < len(text) < LOG_BYTES + 100
        assert text.startswith(b"%d begins" % line)
        assert text.endswith(b"%d ends" % line)
        assert b"bytes left out]" in text
