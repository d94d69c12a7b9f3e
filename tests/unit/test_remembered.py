"""Times that are far longer on inputs that are new are those of a variant that remembers answers."""

import pytest

from common.python.base.results import Block, ClockName, Sample
from common.python.stats.memoized_answers import remembered


def block(*samples: tuple[float, bool], discarded: str | None = None, late: bool = False) -> Block:
    taken = [
        Sample(variant="a", device_us=us, wall_us=2 * us, host_us=1.0, fresh=fresh, late=late) for us, fresh in samples
    ]
    other = Sample(variant="b", device_us=100.0, wall_us=200.0, host_us=1.0, fresh=True)
    return Block(round=0, steps=1, samples=[*taken, other], walls=[], discarded=discarded)


@pytest.mark.parametrize(
    ("clock", "new", "told"),
    [
        ("device", [1.4], False),
        ("device", [1.6], True),
        ("device", [9.0, 1.4], False),
        ("device", [9.0, 1.6], True),
        ("device", [], False),
        ("end_to_end", [9.0], False),
        ("end_to_end", [9.0, 4.9], False),
        ("end_to_end", [9.0, 5.1], True),
    ],
)
def test_far_longer_on_new_inputs(clock: ClockName, new: list[float], told: bool) -> None:
    """By the shortest of such samples, of which the host's clock, which others disturb, needs two."""
    blocks = [block(*[(us, True) for us in new], (1.0, False), (0.9, False), (1.1, False))]
    found = remembered(blocks, "a", clock)
    assert (found is not None) == told
    if told:
        assert found == f"it takes {min(new):.1f} times as long on inputs that it has not seen: it remembers answers"


@pytest.mark.parametrize(
    ("in_time", "late", "told"),
    [
        ([], [(2.9, True), (2.4, True), (1.0, False)], False),
        ([(1.0, False)], [(2.9, True), (2.4, True)], False),
        ([(1.1, True), (1.0, False)], [(2.9, True), (9.0, False)], False),
        ([(2.4, True), (1.0, False)], [(1.0, True), (9.0, False)], True),
        ([], [(9.0, True), (5.1, True), (1.0, False)], True),
        ([(1.0, False)], [(9.0, True), (5.1, True)], True),
        ([], [(9.0, True), (1.0, False)], False),
        ([(1.0, False)] * 3, [(9.0, True), (6.0, True), (5.0, False)], False),
    ],
)
def test_where_the_host_was_late_a_device_sample_is_held_to_what_the_hosts_clock_is(
    in_time: list[tuple[float, bool]], late: list[tuple[float, bool]], told: bool
) -> None:
    """`ch17:moe_grouped_gemm` waits for sizes: on new inputs its baseline took 2.4 and 2.9 times as long on an H200."""
    assert (remembered([block(*in_time), block(*late, late=True)], "a", "device") is not None) == told


@pytest.mark.parametrize(("host_us", "told"), [(60.0, False), (12.0, True)])
def test_a_short_step_that_its_host_was_late_for_is_held_to_its_host(host_us: float, told: bool) -> None:
    """10 us of a kernel, which takes the host some 60: where it is late, that is the sample's time."""
    seen = block((10.0, False))
    seen.samples[0].host_us = host_us
    assert (remembered([seen, block((61.0, True), (62.0, True), late=True)], "a", "device") is not None) == told
    assert remembered([seen, block((61.0, True), (62.0, True))], "a", "device") is not None, "in time it has no excuse"


def test_samples_of_discarded_blocks_and_of_others_tell_nothing() -> None:
    blocks = [block((9.0, True), (9.0, True), discarded="the host was slow"), block((1.0, False))]
    assert remembered(blocks, "a", "device") is None
    assert remembered(blocks, "b", "device") is None, "it has no other samples"
