import pytest

from common.python.base.hardware import DATASHEETS, Datasheet, datasheet
from common.python.base.results import Cost


@pytest.mark.parametrize(
    ("reported", "name"),
    [
        ("NVIDIA A100-SXM4-40GB", "A100 SXM 40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM 80GB"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA B300 SXM6 AC", "B300"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA GB300", "GB300"),
        ("NVIDIA GB10", "GB10"),
        ("NVIDIA GeForce RTX 3090", "RTX 3090"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 5090", "RTX 5090"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("Tesla T4", "T4"),
        ("AMD Instinct MI300X", "MI300X"),
    ],
)
def test_a_board_is_found_by_the_name_that_its_driver_reports(reported: str, name: str) -> None:
    sheet = datasheet(reported)
    assert sheet is not None
    assert sheet.name == name


@pytest.mark.parametrize(
    "reported",
    [
        "NVIDIA A10",
        "NVIDIA A100",  # of 40 or 80 GB: not said
        "NVIDIA A100-PCIE-40GB",
        "NVIDIA H200 NVL",
        "NVIDIA H100 NVL",
        "NVIDIA GH200 480GB",
        "NVIDIA L40",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA A100-SXM4-80GB MIG 1g.10gb",
        "NVIDIA",
        "",
        "llvmpipe",
    ],
)
def test_a_relative_of_a_board_has_no_datasheet(reported: str) -> None:
    assert datasheet(reported) is None


@pytest.mark.parametrize("sheet", DATASHEETS, ids=lambda sheet: sheet.name)
def test_every_figure_is_in_base_units_and_has_a_source(sheet: Datasheet) -> None:
    known = Cost.model_fields["dtype"].description or ""
    assert "https://" in sheet.source
    assert set(sheet.rates) <= set(known.split(": ")[1].split())
    assert all(1e11 < rate < 1e17 for rate in sheet.rates.values())
    assert 1e11 < sheet.hbm < 1e13
    assert 10 < sheet.memory_gb < 300
    assert 50 < sheet.power_w < 1500
    for link in (sheet.nvlink, sheet.pcie):
        assert link is None or 1e10 < link < 1e12


@pytest.mark.parametrize("sheet", DATASHEETS, ids=lambda sheet: sheet.name)
def test_rates_grow_as_types_narrow_and_none_is_a_sparse_one(sheet: Datasheet) -> None:
    rates = sheet.rates
    by_width = [rates[dtype] for dtype in ("fp64", "fp32", "tf32", "bf16", "fp8", "fp4") if dtype in rates]
    assert by_width == sorted(by_width)
    if {"tf32", "bf16"} <= set(rates):
        assert rates["bf16"] / rates["tf32"] == pytest.approx(2, rel=0.02)
    if "fp8" in rates:  # twice by width, and twice more on GeForce by its accumulation
        assert rates["fp8"] / rates["bf16"] == pytest.approx(4 if "RTX" in sheet.name else 2, rel=0.03)


def test_h200_differs_from_h100_in_memory_alone() -> None:
    h100, h200 = datasheet("NVIDIA H100 80GB HBM3"), datasheet("NVIDIA H200")
    assert h100
    assert h200
    assert (h100.rates, h100.nvlink, h100.pcie, h100.l2_bytes) == (h200.rates, h200.nvlink, h200.pcie, h200.l2_bytes)
    assert (h100.hbm, h200.hbm) == (3.35e12, 4.8e12)
    assert h200.rates["bf16"] == 989.4e12


def test_pcie_is_the_payload_of_sixteen_lanes() -> None:
    sheet = datasheet("NVIDIA H200")
    assert sheet
    assert sheet.pcie == pytest.approx(63.0e9, rel=1e-3)
