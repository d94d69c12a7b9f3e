"""What a measurement depends on is told by name, and what moved by more than a factor."""

import pytest
from synthetic_run import manifest, pair

from common.python.base.results import Telemetry
from common.python.regress import environment


def test_a_run_tells_what_it_depends_on() -> None:
    about = manifest(versions={"torch": "2.11.0", "numpy": "2.0"})
    found = environment.facts_of_run(about, "NVIDIA H200")
    assert {name: fact for name, fact in found.items() if fact is not None} == {
        "GPU": "NVIDIA H200",
        "driver": "580",
        "power limit": "700 W",
        "CPU": "a CPU",
        "torch": "2.11.0",
    }
    assert {"CUDA", "triton", "nvcc"} <= found.keys()


def test_differences_are_named_on_one_line_each() -> None:
    before, after = {"a": "1", "b": "2", "c": None}, {"a": "1", "b": "3\n\x1b[31m", "d": "4"}
    assert environment.differences(before, after) == ["b 2 -> 3 [31m", "d unknown -> 4"]
    assert environment.differences(before, before) == []


@pytest.mark.parametrize(
    ("after", "told"), [(1100.0, []), (1101.0, ["x 1000 -> 1101 MHz"]), (909.1, []), (909.0, ["x 1000 -> 909 MHz"])]
)
def test_a_reading_has_moved_beyond_its_factor_either_way(after: float, told: list[str]) -> None:
    assert environment.moved("x", 1000.0, after, 1.1, "MHz") == told
    assert environment.moved("x", None, after, 1.1, "MHz") == environment.moved("x", after, None, 1.1, "MHz") == []


def test_clock_and_pace_are_medians_over_the_blocks_that_count() -> None:
    blocks = pair({"baseline": 100.0, "optimized": 50.0}).blocks[:4]
    for block, clock, pace in zip(blocks, (1000.0, 1200.0, None, 9000.0), (20.0, 24.0, None, 900.0)):
        block.telemetry, block.paces = Telemetry(sm_mhz=clock), [pace, pace - 1] if pace else []
    blocks[3].discarded = "GPU slowed"
    assert (environment.sm_mhz(blocks), environment.pace_us(blocks)) == (1100.0, 22.0)
    blocks[0].telemetry = None
    assert environment.sm_mhz(blocks) == 1200.0
    assert (environment.sm_mhz([]), environment.pace_us([])) == (None, None)


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        ({}, "usual"),
        ({"cold_start": False}, "usual"),
        ({"cold_start": True, "reproducible": True}, "reproducible, cold_start"),
    ],
)
def test_a_mode_is_named_by_its_options(options: dict[str, bool], mode: str) -> None:
    assert environment.mode(manifest(options=options)) == mode
