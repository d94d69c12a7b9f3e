import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from common.python.peaks.store import Curve, Peak, Point, Survey, difference, load, path_of, peaks_of, save

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
VERSIONS = {"driver": "580.1", "CUDA of the driver": "13.0", "torch": "2.11.0", "triton": "3.6.0", "cuBLAS": None}


def peak(name: str, value: float, fastest: float | None = None, unit: str = "B/s") -> Peak:
    figures = {"value": value, "low": value * 0.99, "high": value * 1.01, "fastest": fastest or value}
    return Peak(name=name, unit=unit, method="by hand", samples=12, **figures)  # type: ignore[arg-type]


def survey(*peaks: Peak, **changed: Any) -> Survey:
    known: dict[str, Any] = {"device": "NVIDIA H200", "uuid": "ab-12", "measured": NOON, "seconds": 40.0}
    return Survey(**{**known, "versions": VERSIONS, "peaks": list(peaks), **changed})


def test_what_is_saved_is_loaded_again_whole(tmp_path: Path) -> None:
    gap = Peak(name="fp4", unit="FLOP/s", reason="needs sm_100, this is sm_90")
    told = peak("bf16", 781e12, unit="FLOP/s").model_copy(
        update={"sm_mhz": 1700.0, "power_w": 699.5, "throttle": ["sw_power_cap"]}
    )
    points = [Point(bytes=1024, seconds=1e-5, low=9e-6, high=1.1e-5)]
    curve = Curve(name="all_reduce", ranks=4, share=1.5, method="NCCL", settings={"NCCL_ALGO": "Ring"}, points=points)
    assert curve.rate(points[0]) == pytest.approx(1.5 * 1024e5)
    kept = survey(told, gap, l2_bytes=60e6, curves=[curve])
    path = path_of(tmp_path / "artifacts", kept.uuid)
    assert path == tmp_path / "artifacts" / "peaks" / "ab-12.json"
    save(path, kept)
    assert load(path) == kept
    assert [file.name for file in path.parent.iterdir()] == ["ab-12.json"]  # nothing partial is left


def broken(text: str, **changed: Any) -> str:
    """The JSON of a good file with one field replaced."""
    return json.dumps({**json.loads(text), **changed})


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) // 2],
        lambda text: '{"a":' * 100_000,
        lambda text: broken(text, verdict="faster"),
        lambda text: broken(text, measured="2026-01-31T12:00:00"),  # of no time zone
        lambda text: text.replace("4000000000000.0", "-1.0", 1),
        lambda text: broken(text, peaks=[{"name": "hbm_read", "unit": "B/s"}]),
    ],
    ids=range(6),
)
def test_a_truncated_or_foreign_file_is_one_line_that_names_it_and_says_what_to_do(spoil: Any, tmp_path: Path) -> None:
    good = survey(peak("hbm_read", 4e12)).model_dump_json()
    assert good != spoil(good)
    path = tmp_path / "ab-12.json"
    path.write_text(spoil(good))
    with pytest.raises(ValueError, match="`benchmark_cli peak` measures them again") as raised:
        load(path)
    message = str(raised.value)
    assert message.startswith(str(path))
    assert message.endswith("`benchmark_cli peak` measures them again and replaces the file")
    assert len(message.splitlines()) == 1
    assert len(message) < 400 + len(str(path))


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
    found = difference(survey(), "ab-12", {**VERSIONS, **changed})
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
    assert (peaks.source, peaks.l2_bytes) == ("measured on 2026-01-31", 60e6)
