"""Peaks measured for real by workers on the CPU, links by gloo ranks; a process that is lost leaves its own gap."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from small_tree import ROOT, late_s

from common.python.base.reaper import children, parent_of
from common.python.peaks import ranks as peaks_ranks
from common.python.peaks import survey as peak_survey
from common.python.peaks.ranks import AllReduce
from common.python.peaks.store import NO_GPU, Curve, Peak
from common.python.peaks.survey import _Surveyor
from common.python.proof.ranks import Ranks

CPU = torch.device("cpu")
SIZES = [1024, 16384, 65536]
LONG = [2**22] * 4000  # bytes: minutes, for ranks that are lost meanwhile


@pytest.fixture
def surveyor(tmp_path: Path) -> Iterator[_Surveyor]:
    made = _Surveyor(ROOT, tmp_path / "scratch", tmp_path / "peaks.log")
    yield made
    made.dismiss()


def test_a_peak_that_fails_or_kills_its_worker_leaves_only_its_own_gap(surveyor: _Surveyor) -> None:
    assert surveyor.measure("no_such", "B/s")[0].reason == "failed: KeyError: 'no_such'"
    assert surveyor.measure("bf16", "FLOP/s")[0].reason == NO_GPU  # by another worker
    os.kill(surveyor._worker.pid, signal.SIGKILL)
    died, _ = surveyor.measure("fp16", "FLOP/s")
    assert (died.name, died.unit, died.value) == ("fp16", "FLOP/s", None)
    assert "was killed by SIGKILL" in (died.reason or "")
    assert surveyor.measure("fp64", "FLOP/s")[0].reason == NO_GPU


def test_ranks_measure_a_link_over_sizes_and_its_peak_is_the_best_point(
    surveyor: _Surveyor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    monkeypatch.setenv("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
    for name, ranks, share in (("all_reduce", 2, 1.0), ("all_reduce", 3, 4 / 3)):
        peak, curve = surveyor.measure(name, "B/s", ranks, SIZES)
        assert curve is not None, peak.reason
        assert (curve.name, curve.ranks, curve.share) == (name, ranks, pytest.approx(share))
        assert [point.bytes for point in curve.points] == SIZES
        assert all(point.low <= point.seconds <= point.high for point in curve.points)
        assert {key: curve.settings.get(key) for key in ("NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST")} == {
            "NCCL_NVLS_ENABLE": "0",
            "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
        }
        assert not [key for key in curve.settings if "ASYNC_ERROR" in key]  # which the launcher sets, not the caller
        assert peak.value == pytest.approx(max(map(curve.rate, curve.points)), rel=1e-9)
        assert peak.samples == peaks_ranks.SAMPLES
        assert peak.low <= (peak.value or 0.0) <= (peak.high or 0.0) <= (peak.fastest or 0.0)
        assert peak.method.startswith("gloo")
    assert surveyor.measure("nvlink_copy", "B/s", 2, SIZES)[0].reason == "needs a second GPU that this one can reach"
    assert surveyor.measure("bf16", "FLOP/s")[0].reason == NO_GPU  # by a worker without ranks


def lose(surveyor: _Surveyor, number: signal.Signals) -> list[int]:
    """Send a signal to rank 1 as soon as it measures; the processes that there were."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        worker = surveyor._worker
        board = worker._board if worker else None
        if board and all(board.read(line).what == "measuring a peak" for line in board.ranks):
            time.sleep(0.1)
            os.kill(int(board.read(2).pid), number)
            return [int(board.read(line).pid) for line in (0, *board.ranks)]
        time.sleep(0.01)
    raise TimeoutError


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (signal.SIGKILL, "failed: rank 1 was killed by SIGKILL during measuring a peak"),
        (signal.SIGSTOP, "failed: no answer within 3 s during measuring a peak: rank 0 "),
    ],
)
def test_a_rank_that_is_lost_leaves_a_gap_with_the_reason_and_no_process(
    number: signal.Signals, told: str, surveyor: _Surveyor, monkeypatch: pytest.MonkeyPatch
) -> None:
    surveyor.measure("all_reduce", "B/s", 2, SIZES[:1])  # the ranks are up, so that little time is enough
    monkeypatch.setattr(peak_survey, "PEAK_LIMIT_S", 3.0 if number == signal.SIGSTOP else 30.0)
    found: list[tuple[Peak, Curve | None]] = []
    measuring = threading.Thread(target=lambda: found.append(surveyor.measure("all_reduce", "B/s", 2, LONG)))
    measuring.start()
    pids = lose(surveyor, number)
    started = time.monotonic()
    measuring.join(180)
    assert time.monotonic() - started < 13 + late_s()
    [(peak, curve)] = found
    assert (peak.value, curve) == (None, None)
    assert (peak.reason or "").startswith(told), peak.reason
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            assert parent_of(pid) is None or not children(pid)
            assert not Path(f"/proc/{pid}").exists()
    monkeypatch.undo()
    peak, curve = surveyor.measure("all_reduce", "B/s", 2, SIZES[:1])  # by other ranks
    assert curve is not None, peak.reason


def test_what_never_arrived_is_not_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where memory happens to hold what should arrive."""
    monkeypatch.setattr(torch, "empty_like", torch.clone)
    for rank in (0, 1):
        link = AllReduce(Ranks(rank, 2), 4096, CPU)
        link.resize(1024)
        link.renew()
        assert not link.right()
