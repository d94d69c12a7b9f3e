"""What the pairs of chapters 6 to 8 promise is in the machine code: wide loads, shuffles, shared atomics."""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from common.python.base.toolkit import find_nvcc, find_program
from common.python.cuda import compile_source

ROOT = Path(__file__).resolve().parents[2]
ARCH = "sm_90a"
FUNCTION = re.compile(r"^\s*Function : (\S+)$", re.MULTILINE)
OPCODE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z][\w.]*)", re.MULTILINE)

pytestmark = [
    pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc"),
    pytest.mark.skipif(find_program("cuobjdump") is None, reason="needs cuobjdump"),
]


@cache
def opcodes(source: str, kernel: str) -> list[str]:
    """The opcodes of a kernel in their order; `kernel` is part of its mangled name."""
    library = compile_source(ROOT / source, ARCH).path
    command = [str(find_program("cuobjdump")), "-sass", str(library)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    _, *parts = FUNCTION.split(said)
    [found] = [code for name, code in zip(parts[::2], parts[1::2]) if kernel in name]
    return OPCODE.findall(found)


def count(source: str, kernel: str, opcode: str) -> int:
    return sum(re.match(rf"{opcode}\b", one) is not None for one in opcodes(source, kernel))


def loads_ahead(source: str, kernel: str, load: str) -> int:
    """The most loads of this kind that stand between two uses: conversions of what was loaded, or stores."""
    most = ahead = 0
    for opcode in opcodes(source, kernel):
        ahead = 0 if opcode.startswith(("I2F", "STG")) else ahead + (opcode == load)
        most = max(most, ahead)
    return most


def test_four_floats_are_one_access() -> None:
    plain, wide = "ch06/optimized_vector_add_grid.cu", "ch06/optimized_vector_add_grid__vec4.cu"
    assert count(plain, "add", "LDG.E.128") == count(plain, "add", "STG.E.128") == 0
    assert count(wide, "add", "LDG.E.128") >= 2
    assert count(wide, "add", "STG.E.128") >= 1


def test_shuffles_take_the_place_of_barriers() -> None:
    tree = "ch06/baseline_block_reduction.cu"
    assert (count(tree, "sum_tree", "BAR"), count(tree, "sum_tree", "SHFL")) == (9, 0)
    for source, kernel in (
        ("ch06/optimized_block_reduction__shuffle.cu", "sum_shuffled"),
        ("ch06/optimized_block_reduction.cu", "sum_in_registers"),
    ):
        assert (count(source, kernel, "BAR"), count(source, kernel, "SHFL")) == (1, 10)


def test_a_block_adds_its_sum_with_one_atomic_and_loads_four_wide_pieces_first() -> None:
    source, kernel = "ch06/optimized_block_reduction.cu", "sum_in_registers"
    assert count(source, kernel, "REDG?") == 1
    before_adding = opcodes(source, kernel)[: opcodes(source, kernel).index("FADD")]
    assert sum(opcode.startswith("LDG.E.128") for opcode in before_adding) == 4


@pytest.mark.parametrize("rung", ["", "__block", "__copies4"])
def test_codes_are_counted_in_shared_memory_and_the_counts_added_after_the_last_barrier(rung: str) -> None:
    baseline, source = "ch08/baseline_histogram_privatized.cu", f"ch08/optimized_histogram_privatized{rung}.cu"
    assert (count(baseline, "count", "ATOMS"), count(baseline, "count", "REDG?")) == (0, 1)
    code = opcodes(source, "count")
    last_barrier = max(index for index, opcode in enumerate(code) if opcode.startswith("BAR"))
    assert count(source, "count", "ATOMS") == 16 * count(source, "count", "LDG.E.128") + 1  # for what is left over
    assert not any(opcode.startswith("ATOMS") for opcode in code[last_barrier:])
    assert not any(opcode.startswith("RED") for opcode in code[:last_barrier])


def test_eight_loads_are_begun_before_the_first_is_used() -> None:
    words, bytes_ = "LDG.E.CONSTANT", "LDG.E.U8.CONSTANT"
    assert loads_ahead("ch08/baseline_bytes_in_flight.cu", "dequantize", bytes_) == 1
    assert loads_ahead("ch08/optimized_bytes_in_flight__eight_loads.cu", "dequantize", bytes_) == 8
    assert loads_ahead("ch08/optimized_bytes_in_flight.cu", "dequantizeILi4E", words) == 8 + 1  # and the row's scale


def test_eight_codes_are_one_load_and_their_values_one_store() -> None:
    source, kernel = "ch08/optimized_bytes_in_flight__vec8.cu", "dequantizeILi8E"
    assert count(source, kernel, "LDG.E.64") >= 1
    assert count(source, kernel, "STG.E.128") >= 1
    assert loads_ahead(source, kernel, "LDG.E.64.CONSTANT") == 1


def test_rows_of_whole_pieces_are_transposed_in_accesses_of_16_bytes() -> None:
    source = "ch07/optimized_transpose.cu"
    for kind, whole in (("LDG", "LDG.E.128"), ("STG", "STG.E.128"), ("STS", "STS.128"), ("LDS", "LDS.128")):
        wide = count(source, "transposeILb1E", whole)  # a block of 4 x 4 a thread, and no narrower access
        assert wide >= 4, whole
        assert count(source, "transposeILb1E", kind) == wide, kind
    assert count(source, "transposeILb0E", "LDG.E.128") == count(source, "transposeILb0E", "STG.E.128") == 0
    assert count(source, "transposeILb0E", "LDG.E") == 16
    for rung in ("__tile", "__padded"):
        assert count(f"ch07/optimized_transpose{rung}.cu", "transpose", "LDG.E.128") == 0
