"""Formats of few bits, held to torch's own casts, to the numbers that the specifications print, and to a search."""

from pathlib import Path

import pytest
import torch

from ch19.baseline_nvfp4_gemm import workload as nvfp4
from common.models.formats import decoded, encoded, exponents, rounding_error, scales, sizes
from common.python.workload import Draw


@pytest.mark.parametrize(("name", "dtype"), [("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)])
def test_fp8_codes_decode_and_encode_as_in_torch(name: str, dtype: torch.dtype) -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    ours, theirs = decoded(codes, name), codes.view(dtype).double()
    finite = theirs.isfinite()
    assert ours[finite].equal(theirs[finite])
    assert ours[~finite].isnan().all()
    between = torch.cat([theirs[finite], *((theirs[finite] + theirs[finite].roll(shift)) / 2 for shift in (1, 2))])
    assert encoded(between, name).equal(between.float().to(dtype).view(torch.uint8))
    assert encoded(torch.tensor([-1e9]), name).item() == 128 + len(sizes(name)) - 1


@pytest.mark.parametrize(("name", "largest", "least"), [("e2m1", 6.0, 0.5), ("e3m2", 28.0, 0.0625)])
def test_small_formats_have_the_numbers_of_their_specification(name: str, largest: float, least: float) -> None:
    finite = sizes(name)
    assert (finite[0], finite[1], finite[-1]) == (0, least, largest)
    assert bool((finite.diff() > 0).all())
    codes = torch.arange(2 * len(finite), dtype=torch.uint8)
    assert encoded(decoded(codes, name), name).equal(codes)
    assert encoded((finite[1:] + finite[:-1]) / 2, name).fmod(2).eq(0).all(), "of two equally near, the even code"


def test_a_block_shares_the_exponent_of_its_largest_number() -> None:
    blocks = torch.tensor([[7.9, -1.0], [8.0, 0.0], [0.0, 0.0]])
    assert exponents(blocks, "e2m1").tolist() == [127, 128, 0]
    assert scales(exponents(blocks, "e2m1")).tolist()[:2] == [1.0, 2.0]
    assert rounding_error("e4m3", 32) < 0.03 < rounding_error("e3m2", 32) < rounding_error("e2m1", 32) < 0.2


def test_scales_of_nvfp4_lie_where_tensor_cores_look_for_them(tmp_path: Path) -> None:
    """cuBLAS' manual gives a scale's place in blocks of 128 rows by 4 groups, which tcgen05.cp takes as they are."""
    k = nvfp4.sizes["test"]["k"]
    given = nvfp4.inputs(Draw(torch.device("cpu"), 0, tmp_path), **nvfp4.sizes["test"])
    for name in "ab":
        row, group = torch.arange(len(given[name]))[:, None], torch.arange(k // 16)
        block = row // 128 * (k // 64) + group // 4
        places = block * 512 + row % 32 * 16 + row % 128 // 32 * 4 + group % 4
        scale = decoded(given[f"{name}_scales"].flatten()[places], "e4m3").repeat_interleave(16, dim=1)
        pairs = given[f"{name}_codes"]
        numbers = torch.stack((decoded(pairs & 15, "e2m1"), decoded(pairs >> 4, "e2m1")), dim=2).flatten(1)
        assert (numbers * scale).equal(given[name].double())
