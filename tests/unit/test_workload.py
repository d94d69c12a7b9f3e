"""A problem is refused at once where it contradicts itself, and the same seed draws the same inputs."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from small_workload import workload
from torch import Tensor

from common.python.base.safe_read import first_of
from common.python.workload import Draw

SIZES = {"bench": {"n": 64}, "test": {"n": 5}}


def draw(folder: Path, seed: int = 7) -> Draw:
    return Draw(torch.device("cpu"), seed, folder)


def everything(source: Draw) -> list[Tensor]:
    return [
        source.normal(3, 5),
        source.uniform(4),
        source.integers(6, high=100),
        source.permutation(9),
        source.host.normal(3, 5),
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sizes": {"test": {}}}, "has no 'bench'"),
        ({"sizes": {"bench": {}}}, "has no 'test'"),
        ({"sizes": {**SIZES, "cpu": {"n": 3, "dtype": torch.float16}}}, "^sizes.cpu.dtype"),
        ({"sizes": {**SIZES, "cpu": {"model": {"heads": [2]}}}}, "^sizes.cpu.model"),
        ({"sizes": {**SIZES, "large": {}}}, r"has \['large'\]: the sizes are bench, test and cpu"),
        ({"tolerance": -1e-6}, "^tolerance: Input should be greater than or equal to 0$"),
        ({"tolerance": 1.0}, "^tolerance: Input should be less than 1$"),
        ({"tolerance": float("nan")}, "^tolerance: Input should be a finite number$"),
        ({"clock": "host"}, "^clock: Input should be 'device' or 'end_to_end'$"),
        ({"goal": "size"}, "^goal: Input should be 'speed' or 'memory'$"),
        ({"gpus": 0}, "^gpus: Input should be greater than or equal to 1$"),
        ({"frozen": "w"}, "^frozen: "),
        ({"frozen": ["w", "cache"], "mutates": ["cache"]}, r"\['cache'\] both frozen and mutated"),
    ],
)
def test_a_contradiction_is_refused_with_what_would_be_right(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as refused:
        workload(**changes)
    assert re.search(message, first_of(refused.value))


def test_inputs_repeat_with_the_seed_and_differ_by_seed_draw_and_host(tmp_path: Path) -> None:
    source = draw(tmp_path)
    first, later = everything(source), everything(source)
    again, other = (everything(draw(tmp_path, seed)) for seed in (7, 8))
    assert all(torch.equal(a, b) for a, b in zip(first, again))
    assert not any(torch.equal(a, b) for others in (later, other) for a, b in zip(first, others))
    device, *_, host = first
    assert (host.device.type, torch.equal(device, host)) == ("cpu", False)


def test_noise_has_the_distribution_and_dtype_asked_for(tmp_path: Path) -> None:
    source = draw(tmp_path)
    normal = source.normal(100, 100, std=3.0, dtype=torch.bfloat16)
    uniform = source.uniform(10_000, low=-2.0, high=6.0)
    integers = source.integers(10_000, low=3, high=6, dtype=torch.int32)
    assert normal.dtype is torch.bfloat16
    assert normal.double().mean() == pytest.approx(0.0, abs=0.15)
    assert normal.double().std() == pytest.approx(3.0, rel=0.05)
    assert -2.0 <= uniform.min() < -1.9
    assert 5.9 < uniform.max() < 6.0
    assert source.normal(10_000).std() == pytest.approx(1.0, rel=0.05)
    assert 0.99 < source.uniform(10_000).max() < 1.0
    assert integers.dtype is torch.int32
    assert set(integers.tolist()) == {3, 4, 5}
    assert sorted(source.permutation(50).tolist()) == list(range(50))


def test_a_file_holds_the_bytes_of_its_tensor_and_drawing_again_overwrites_it(tmp_path: Path) -> None:
    source = draw(tmp_path)
    old, new = source.normal(4, 6).T, source.integers(3, high=9, dtype=torch.int16)
    path = source.file("shards/a.bin", old)
    assert path == tmp_path / "shards" / "a.bin"
    assert path.read_bytes() == old.contiguous().numpy().tobytes()
    assert source.file("shards/a.bin", new) == path
    assert path.read_bytes() == new.numpy().tobytes()
    assert source.file("one.bin", torch.tensor(2.5)).read_bytes() == torch.tensor([2.5]).numpy().tobytes()
    assert source.file("none.bin", torch.empty(0, 3)).read_bytes() == b""
