"""`benchmark_cli peak`: what it measures of this machine, prints and keeps."""

import json
from pathlib import Path

import pytest
from small_tree import assert_usage, cli
from synthetic_run import host, peak, survey

from common.python.peaks import store as peak_store
from common.python.peaks.display import peak_line
from common.python.peaks.store import NO_GPU, Curve, Peak, Point
from common.python.performance_targets import datasheet_peaks


@pytest.mark.nightly
def test_peak_measures_this_machine_prints_json_and_keeps_it(tmp_path: Path) -> None:
    done = cli("peak", "--artifacts-dir", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    path = tmp_path / "peaks" / "cpu.json"
    assert json.loads(done.stdout) == json.loads(path.read_text())
    found = peak_store.load(path)
    assert (found.device, found.uuid) == ("cpu", "cpu")
    values = {peak.name: peak.value for peak in found.peaks if peak.value is not None}
    assert set(values) == {"host_read", "host_copy", "host_triad", "disk_write", "disk_read"}
    assert {peak.reason for peak in found.peaks if peak.value is None} == {NO_GPU}
    assert [line.split()[0] for line in done.stderr.splitlines()] == list(values)  # a line each, as it goes
    assert set(peak_store.peaks_of(found).values) == {"host", "disk"}


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    assert_usage(cli("peak", "--artifacts-dir", tmp_path / "taken"), f"cannot use {tmp_path / 'taken'}: File exists")


def test_what_was_measured_is_printed_and_why_the_rest_was_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"device": "NVIDIA H200", "uuid": "ab-12"}
    monkeypatch.setattr("common.python.peaks.survey.open_machine", lambda *_: (host(), found))
    points = [
        Point(bytes=1024, seconds=1e-5, low=1e-5, high=1e-5),
        Point(bytes=2**30, seconds=4e-3, low=4e-3, high=5e-3),
    ]
    curve = Curve(name="all_reduce", ranks=4, share=1.5, method="NCCL", points=points)
    figures = {
        "low": 4.2e12,
        "high": 4.3e12,
        "sustained": 4.1e12,
        "sm_mhz": 1980,
        "power_w": 512,
        "method": "copy_ [x]",
    }
    gap = Peak(name="fp4", unit="FLOP/s", reason="needs sm_100, this is sm_90")
    absent = Peak(name="exp2", unit="OP/s", reason=NO_GPU)
    whole = survey(peak("hbm_copy", 4.25e12, **figures), gap, absent, uuid="ab-12", curves=[curve])
    monkeypatch.setattr("common.python.peaks.survey.survey", lambda *arguments: whole)
    done = cli("peak", "--artifacts-dir", tmp_path)
    assert done.returncode == 0
    line = peak_line(whole.peaks[0], datasheet_peaks("NVIDIA H200"))
    for cell in ("4.25 TB/s", "4.2 TB/s to 4.3 TB/s", "4.1 TB/s", "88.5%", "1980 MHz", "512 W", "copy_ [x]"):
        assert cell in line
    assert peak_line(gap, None).split(maxsplit=1) == ["fp4", "not measured: needs sm_100, this is sm_90"]
    assert "all-reduce: 10 us at 1 KiB, 403 GB/s at 1 GiB (NCCL)\n" in done.stdout
    assert "not measured, needs a CUDA GPU: exp2\n" in done.stdout
    assert f"peaks: {tmp_path / 'peaks' / 'ab-12.json'}" in done.stdout.replace("\n", "")
    assert peak_store.load(tmp_path / "peaks" / "ab-12.json") == whole
