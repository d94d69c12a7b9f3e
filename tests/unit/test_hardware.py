import pytest

from common.python.base.hardware import DATASHEETS, Datasheet, datasheet
from common.python.base.results import Cost

BOARDS = {
    "NVIDIA A100-SXM4-40GB": "A100 SXM 40GB",
    "NVIDIA A100-SXM4-80GB": "A100 SXM 80GB",
    "NVIDIA H100 80GB HBM3": "H100 SXM",
    "NVIDIA H200": "H200",
    "NVIDIA B300 SXM6 AC": "B300",
    "NVIDIA GeForce RTX 4090": "RTX 4090",
    "Tesla T4": "T4",
    "AMD Instinct MI300X": "MI300X",
}
RELATIVES = (  # an A100 of 40 or 80 GB, which its name does not say, among them
    *("NVIDIA A10", "NVIDIA A100", "NVIDIA A100-PCIE-40GB", "NVIDIA A100-SXM4-80GB MIG 1g.10gb", "NVIDIA H200 NVL"),
    *("NVIDIA GH200 480GB", "NVIDIA L40", "NVIDIA GeForce RTX 3090 Ti", "NVIDIA GeForce RTX 4090 Laptop GPU"),
    *("", "llvmpipe"),
)


@pytest.mark.parametrize(("reported", "name"), [*BOARDS.items(), *((relative, None) for relative in RELATIVES)])
def test_a_board_is_found_by_the_name_that_its_driver_reports_and_a_relative_is_not(
    reported: str, name: str | None
) -> None:
    sheet = datasheet(reported)
    assert (sheet and sheet.name) == name


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
