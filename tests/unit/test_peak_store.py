from pathlib import Path
from typing import Any

import pytest
from synthetic_run import peak, survey

from common.python.peaks.store import Curve, Peak, Point, difference, load, path_of, peaks_of, save

VERSIONS = {"driver": "580.1", "CUDA of the driver": "13.0", "torch": "2.11.0", "triton": "3.6.0", "cuBLAS": None}


def test_what_is_saved_is_loaded_again_whole(tmp_path: Path) -> None:
    gap = Peak(name="fp4", unit="FLOP/s", reason="needs sm_100, this is sm_90")
    told = peak("bf16", 781e12, "FLOP/s", sm_mhz=1700.0, power_w=699.5, throttle=["sw_power_cap"])
    points = [Point(bytes=1024, seconds=1e-5, low=9e-6, high=1.1e-5)]
    curve = Curve(name="all_reduce", ranks=4, share=1.5, method="NCCL", settings={"NCCL_ALGO": "Ring"}, points=points)
    assert curve.rate(points[0]) == pytest.approx(1.5 * 1024e5)
    kept = survey(told, gap, l2_bytes=60e6, curves=[curve])
    path = path_of(tmp_path / "artifacts", kept.uuid)
    assert path == tmp_path / "artifacts" / "peaks" / "GPU-1.json"
    save(path, kept)
    assert load(path) == kept
    assert [file.name for file in path.parent.iterdir()] == ["GPU-1.json"]  # nothing partial is left


@pytest.mark.parametrize(
    ("given", "spoilt"), [("03:04:05Z", "03:04:05"), ("4000000000000.0", "-1.0"), ('"fastest":4000000000000.0,', "")]
)
def test_a_foreign_file_is_one_line_that_names_it_and_says_what_to_do(given: str, spoilt: str, tmp_path: Path) -> None:
    """A time of no zone, a rate below zero, a figure that is missing; test_fuzz has what else a file may hold."""
    good = survey(peak("hbm_read", 4e12)).model_dump_json()
    assert given in good
    path = tmp_path / "ab-12.json"
    path.write_text(good.replace(given, spoilt))
    with pytest.raises(ValueError, match=rf"^{path} .*`benchmark_cli peak` measures them again and replaces the file$"):
        load(path)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, None),
        ({"driver": "590.2"}, "were measured with driver 580.1, here is 590.2"),
        ({"cuBLAS": "13.1"}, "were measured with cuBLAS unknown, here is 13.1"),
        ({"torch": None}, "were measured with torch 2.11.0, here is unknown"),
    ],
)
def test_peaks_of_other_versions_are_not_used_and_the_version_is_named(changed: dict[str, Any], told: str) -> None:
    found = difference(survey(versions=VERSIONS), "GPU-1", {**VERSIONS, **changed})
    assert found is None if told is None else found is not None and told in found


def test_a_limit_is_made_of_the_best_that_was_seen_of_each_resource() -> None:
    measured = survey(
        peak("hbm_read", 4.4e12),
        peak("hbm_write", 4.1e12, fastest=4.5e12),
        peak("hbm_copy", 4.25e12),
        peak("l2_read", 6e12),
        peak("bf16", 781e12, fastest=850e12, unit="FLOP/s"),
        peak("bf16_sparse", 1200e12, unit="FLOP/s"),
        peak("fp32", 51e12, unit="FLOP/s"),
        peak("fp32_fma", 62e12, unit="FLOP/s"),
        peak("fp8", 1419e12, unit="FLOP/s"),
        peak("fp8_rowwise", 1284e12, unit="FLOP/s"),
        peak("pcie_to_device", 55e9),
        peak("pcie_to_host", 53e9),
        peak("pcie_both", 100e9),
        peak("launch_eager", 5.3e-6, fastest=5.1e-6, unit="s"),
        peak("graph_node", 0.88e-6, fastest=0.86e-6, unit="s"),
        Peak(name="disk_read", unit="B/s", reason="the disk is full"),
        l2_bytes=60e6,
    )
    peaks = peaks_of(measured)
    assert peaks.values == {
        "hbm": 4.4e12,
        "bf16": 781e12,
        "fp32": 62e12,
        "fp8": 1419e12,
        "pcie": 55e9,
        "launch": 0.88e-6,
    }
    assert (peaks.fastest["hbm"], peaks.fastest["bf16"], peaks.fastest["launch"]) == (4.5e12, 850e12, 0.86e-6)
    assert set(peaks.fastest) == set(peaks.values)
    assert (peaks.source, peaks.l2_bytes) == ("measured on 2026-01-01", 60e6)
