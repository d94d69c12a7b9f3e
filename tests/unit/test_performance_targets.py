import pytest

from common.python.base.hardware import DATASHEETS, Datasheet, datasheet
from common.python.base.results import Cost
from common.python.performance_targets import Peaks, datasheet_peaks, impossible, limit, rates, total

# Round peaks, so that every expectation below can be worked out by hand.
PEAKS = Peaks(
    values={
        "hbm": 4e12,
        "bf16": 800e12,
        "int8": 1600e12,
        "exp2": 4e12,
        "pcie": 50e9,
        "nvlink": 400e9,
        "disk": 5e9,
        "host": 200e9,
        "launch": 5e-6,
    },
    source="measured by hand",
)


@pytest.mark.parametrize(
    ("cost", "resource", "us", "unit"),
    [
        # A square bf16 GEMM: 2 n^3 / 800e12 against 6 n^2 / 4e12 seconds; they meet at n = 600.
        (Cost(read=6 * 200**2, flops=2 * 200**3, dtype="bf16"), "hbm", 0.06, "B/s"),
        (Cost(read=6 * 1000**2, flops=2 * 1000**3, dtype="bf16"), "bf16", 2.5, "FLOP/s"),
        (Cost(pcie_bytes=1e6), "pcie", 20.0, "B/s"),
        (Cost(nvlink_bytes=1e6), "nvlink", 2.5, "B/s"),
        (Cost(disk_bytes=1e6), "disk", 200.0, "B/s"),
        (Cost(host_bytes=1e6), "host", 5.0, "B/s"),
        (Cost(flops=8e9, dtype="int8"), "int8", 5.0, "OP/s"),
        (Cost(flops=2e7, dtype="exp2"), "exp2", 5.0, "OP/s"),
        (Cost(launches=3), "launch", 15.0, "s"),
        (Cost(launches=1, read=4e6), "launch", 5.0, "s"),
        (Cost(launches=1, read=4e7), "hbm", 10.0, "B/s"),
    ],
)
def test_every_resource_can_bind(cost: Cost, resource: str, us: float, unit: str) -> None:
    bound = limit([cost], PEAKS)
    assert (bound.resource, bound.unit) == (resource, unit)
    assert bound.us == pytest.approx(us)


def test_hbm_bytes_of_an_older_file_become_read_and_a_pair_may_not_state_them() -> None:
    assert Cost.model_validate_json('{"hbm_bytes": 3e6, "read": 0.0}') == Cost(read=3e6)
    assert Cost.model_validate_json('{"hbm_bytes": 0.0, "read": 2e6, "write": 1e6}') == Cost(read=2e6, write=1e6)
    with pytest.raises(ValueError, match="hbm_bytes"):
        Cost.model_validate({"hbm_bytes": 3e6})


def test_rates_are_in_the_units_of_the_field() -> None:
    cost = Cost(
        read=3e6,
        flops=5e9,
        dtype="bf16",
        pcie_bytes=2e5,
        nvlink_bytes=1e6,
        disk_bytes=1e4,
        host_bytes=4e5,
        launches=1,
        items=100,
        unit="tokens",
    )
    assert rates(cost, 10.0) == pytest.approx(
        {
            "GB/s": 300.0,
            "TFLOP/s": 500.0,
            "PCIe GB/s": 20.0,
            "NVLink GB/s": 100.0,
            "disk GB/s": 1.0,
            "host GB/s": 40.0,
            "tokens/s": 1e7,
        }
    )


# 4e9 bytes at 4e12 bytes/s are 1000 us; 5% faster is 952.4 us.
@pytest.mark.parametrize(("us", "caught"), [(1100.0, False), (960.0, False), (940.0, True)])
def test_a_rate_beyond_its_peak_is_impossible(us: float, caught: bool) -> None:
    sentence = impossible([Cost(read=4e9, launches=1)], us, PEAKS)
    assert (sentence is not None) == caught
    if sentence:
        assert sentence == (
            "hbm: 940 us would be 1.06 times the peak of 4 TB/s (measured by hand): "
            "doubt the declared read + write of 4e+09, the time, or the peak of hbm"
        )


@pytest.mark.parametrize("cost", [Cost(disk_bytes=2e6), Cost(host_bytes=2e6), Cost(host_bytes=2e6, read=2e6)])
def test_disk_and_host_memory_that_others_used_during_the_survey_accuse_nobody(cost: Cost) -> None:
    surveyed = Peaks(values={"disk": 2e9, "host": 2e9, "hbm": 2e9}, source="measured by hand")
    assert (impossible([cost], 100.0, surveyed) is not None) == (cost.read > 0)


# The bf16 peak of 800e12 FLOP/s: 8e12 FLOPs take 10,000 us; the fastest sample of 880e12 takes 9,091 us, 5% less 8,658.
@pytest.mark.parametrize(
    ("us", "plain", "burst"), [(9600.0, False, False), (9400.0, True, False), (8600.0, True, True)]
)
def test_a_rate_is_held_against_the_fastest_sample_of_its_peak_and_a_limit_is_not(
    us: float, plain: bool, burst: bool
) -> None:
    cost, wandering = Cost(flops=8e12, dtype="bf16"), PEAKS.model_copy(update={"fastest": {"bf16": 880e12}})
    assert (impossible([cost], us, PEAKS) is not None) == plain
    assert (impossible([cost], us, wandering) is not None) == burst
    bound = limit([cost], wandering)
    assert bound.us == pytest.approx(10_000.0)


def test_what_fits_the_cache_is_no_proof_of_cheating() -> None:
    cached = PEAKS.model_copy(update={"l2_bytes": 40e6})
    assert impossible([Cost(read=40e6)], 5.0, PEAKS) is not None
    assert impossible([Cost(read=40e6)], 5.0, cached) is None
    assert impossible([Cost(read=80e6)], 10.0, cached) is None  # 40 MB must move, which takes these 10 us
    assert impossible([Cost(read=80e6)], 9.0, cached) is not None


def test_datasheet_peaks_know_the_gpu_and_nothing_of_its_host() -> None:
    peaks = datasheet_peaks("NVIDIA H200")
    assert peaks.values["hbm"] == 4.8e12
    assert peaks.values["bf16"] == 989.4e12
    assert peaks.values["nvlink"] == 450e9
    assert peaks.source == "datasheet of H200"
    assert peaks.l2_bytes == 50 * 2**20
    assert not {"disk", "host", "launch"} & set(peaks.values)
    assert "nvlink" not in (datasheet_peaks("NVIDIA L4") or PEAKS).values
    assert datasheet_peaks("NVIDIA A10") is None


def test_a_datasheet_rate_may_be_beaten_by_the_clock_but_its_bandwidth_may_not() -> None:
    peaks = datasheet_peaks("NVIDIA GeForce RTX 4090")
    second = 1e6
    assert impossible([Cost(flops=1.2 * 165.2e12, dtype="bf16")], second, peaks) is None
    assert impossible([Cost(flops=1.4 * 165.2e12, dtype="bf16")], second, peaks) is not None
    assert impossible([Cost(read=1.2 * 1.008e12)], second, peaks) is not None
    measured = Peaks(values={"bf16": 165.2e12}, source="measured on 2026-01-31")
    assert impossible([Cost(flops=1.06 * 165.2e12, dtype="bf16")], second, measured) is not None


MIXED = PEAKS.model_copy(
    update={"mixes": {"hbm_read": 4.0e12, "hbm_triad": 3.4e12, "hbm_copy": 3.0e12, "hbm_write": 5.0e12}}
)


@pytest.mark.parametrize(
    ("read", "write", "peak"),
    [(1.0, 0.0, 4e12), (5.0, 1.0, 3.7e12), (2.0, 1.0, 3.4e12), (1.0, 1.0, 3e12), (1.0, 3.0, 4e12), (0.0, 1.0, 5e12)],
)
def test_memory_has_a_peak_for_each_mix_of_reads_and_writes(read: float, write: float, peak: float) -> None:
    cost = Cost(read=read * 1e9, write=write * 1e9)
    bound = limit([cost], MIXED)
    assert bound.peak == pytest.approx(peak)
    assert bound.us == pytest.approx((read + write) * 1e15 / peak)
    assert impossible([cost], 1.04 * bound.us, MIXED) is None
    assert impossible([cost], 0.9 * bound.us, MIXED.model_copy(update={"l2_bytes": 0.0})) is not None


def test_the_least_times_of_phases_add_up_and_no_limit_is_under_the_empty_step() -> None:
    phases = [Cost(read=4e9, flops=1e9, dtype="bf16"), Cost(flops=2e12, dtype="bf16", items=3, unit="tokens")]
    apart = [limit([phase], MIXED) for phase in phases]
    both = limit(phases, MIXED)
    assert both.us == pytest.approx(sum(one.us for one in apart if one))
    assert both.resource == max((one for one in apart if one), key=lambda one: one.us).resource
    assert (total(phases).read, total(phases).flops, total(phases).items) == (4e9, 2e12 + 1e9, 3)
    floor = limit([Cost(read=1.0)], MIXED, floor_us=2.0)
    assert (floor.us, floor.resource) == (2.0, "empty step") if floor else False


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
