"""The order in which `packed` puts the codes of chapter 19 is that in which the lanes of mma.sync want them."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ch19.baseline_int4_prepacked_gemm import GROUP, dequantised, nibbles, workload
from ch19.optimized_int4_prepacked_gemm import TILE, packed
from common.python.workload import Draw, Inputs

SOURCE = (Path(__file__).resolve().parents[2] / "ch19" / "optimized_int4_prepacked_gemm.cu").read_text()
SIZES = [(1, 128, 8), (13, 384, 328), (16, 256, 512)]
LANE, REGISTER, PART = np.ogrid[:32, :4, :2]
# PTX ISA, "Matrix Fragments for mma.m16n8k16": the place in `a` of each half of a lane's registers.
ROW, COLUMN = LANE // 4 + REGISTER % 2 * 8 + 0 * PART, LANE % 4 * 2 + REGISTER // 2 * 8 + PART


def drawn(rows: int, features: int, outputs: int) -> Inputs:
    return workload.inputs(Draw(torch.device("cpu"), 0, Path()), rows=rows, features=features, outputs=outputs)


def constant(name: str) -> int:
    [value] = re.findall(rf"constexpr uint32_t {name} = (0x\w+);", SOURCE)
    return int(value, 16)


def lop3(a: NDArray[np.uint32], b: int, c: int, table: int) -> NDArray[np.uint32]:
    """PTX's lop3.b32: each bit is that of the table whose index is those of a, b and c."""
    index = [(a >> np.uint32(bit) & 1) * 4 + (b >> bit & 1) * 2 + (c >> bit & 1) for bit in range(32)]
    bits = [(table >> of_bit & 1).astype(np.uint32) << np.uint32(bit) for bit, of_bit in enumerate(index)]
    return np.bitwise_or.reduce(bits)


def bf16_pairs(registers: NDArray[np.uint32]) -> NDArray[np.float32]:
    """Both halves of each register, the low one first."""
    return (np.stack((registers, registers >> np.uint32(16)), -1) << np.uint32(16)).view(np.float32)


def fragments(words: NDArray[np.uint32]) -> NDArray[np.float32]:
    """What the kernel gives mma.sync for each word: [..., register, half of it]."""
    [(table, shift, mask)] = re.findall(r'lop3\.b32 .*?(0x\w+);.*?"r"\(word >> (\d) \* i\), "n"\((0x\w+)\)', SOURCE)
    pair = constant("PAIR")
    made = [lop3(words >> np.uint32(int(shift) * i), int(mask, 16), pair, int(table, 16)) for i in range(4)]
    return bf16_pairs(np.stack(made, -1))


@pytest.mark.parametrize("size", SIZES)
def test_each_lanes_words_hold_its_fragments_of_the_weight(size: tuple[int, int, int]) -> None:
    codes = drawn(*size)["codes"]
    tiles, groups = -(-size[2] // TILE), size[1] // GROUP
    words = packed(codes).numpy().view(np.uint32).reshape(tiles, groups, 2, TILE // 16, 32, 4)
    found = np.full((tiles, groups, 2, TILE // 16, 4, 16, 16), np.nan, np.float32)  # fragments of 16 x 16 along k
    found[..., ROW, COLUMN] = fragments(words).swapaxes(4, 5)
    weight = found.transpose(0, 3, 5, 1, 2, 4, 6).reshape(tiles * TILE, size[1])
    [offset] = set(bf16_pairs(np.array([constant("OFFSET")], np.uint32)).ravel().tolist())
    wanted = nibbles(codes).numpy().astype(np.float32) - 8
    np.testing.assert_array_equal(weight[: size[2]] + offset, wanted)
    np.testing.assert_array_equal(weight[size[2] :] + offset, -8)  # outputs that there are not


def test_the_even_feature_is_in_the_low_bits_of_a_byte() -> None:
    assert nibbles(torch.tensor([[0x21, 0xF3]], dtype=torch.uint8)).tolist() == [[1, 2, 3, 15]]


def test_every_weight_is_exact_in_bf16_and_the_scales_are_more_than_powers_of_two() -> None:
    inputs = drawn(13, 384, 328)
    codes, scales = inputs["codes"], inputs["scales"]
    assert torch.equal(dequantised(codes, scales).double(), dequantised(codes, scales.double()))
    assert len(torch.frexp(scales.float()).mantissa.unique()) == 16
    one = dequantised(torch.full((8, GROUP), 0x70, dtype=torch.uint8), torch.arange(16.0).view(2, 8))
    assert one[3].tolist() == [-24.0, -3.0] * (GROUP // 2) + [-88.0, -11.0] * (GROUP // 2)
