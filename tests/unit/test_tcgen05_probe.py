"""tools/tcgen05_probe.cu builds for the GPUs that have tcgen05; ptxas refuses it, by name, for the one that has not.

What the pairs for such GPUs tell the tensor cores of their tiles is emulated.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from common.python.base.toolkit import find_nvcc, find_program, nvcc_version

ROOT = Path(__file__).resolve().parents[2]
PROBE = ROOT / "tools" / "tcgen05_probe.cu"
DESCRIPTORS = """
#define main probe
#include "{probe}"
#undef main
int main() {{
  printf("%u %llu\\n", INSTRUCTION, (unsigned long long)operand(0x12340));
  for (int row = 0; row < M; ++row)
    for (int k = 0; k < K; ++k) printf("%d\\n", place(row, k));
}}
"""

pytestmark = pytest.mark.skipif(find_nvcc() is None or (nvcc_version() or "") < "13", reason="needs nvcc 13")


def nvcc(source: Path, target: str, *options: str | Path) -> "subprocess.CompletedProcess[str]":
    command = [str(find_nvcc()), f"-arch=compute_{target}", f"-code=sm_{target}", *map(str, options), str(source)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def machine_code(cubin: Path) -> str | None:
    """The disassembly; None without a disassembler that knows the target."""
    program = find_program("cuobjdump")
    if program is None:
        return None
    done = subprocess.run([str(program), "-sass", str(cubin)], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


@pytest.mark.parametrize("target", ["100a", pytest.param("103a", marks=pytest.mark.nightly)])
def test_the_probe_builds_into_one_tensor_core_instruction(target: str, tmp_path: Path) -> None:
    done = nvcc(PROBE, target, "-cubin", "-Xptxas", "-v", "-o", tmp_path / "probe.cubin")
    assert done.returncode == 0, done.stderr
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in done.stderr
    code = machine_code(tmp_path / "probe.cubin")
    if code is not None:
        assert re.findall(r"\b(UTC\w*MMA)\b", code) == ["UTCHMMA"]
        assert "LDTM" in code


@pytest.mark.nightly
def test_ptxas_refuses_the_probe_for_sm_121a_and_says_why(tmp_path: Path) -> None:
    done = nvcc(PROBE, "121a", "-cubin", "-o", tmp_path / "probe.cubin")
    assert done.returncode != 0
    assert not (tmp_path / "probe.cubin").exists()
    for instruction in ("alloc", "mma", "commit", "ld", "dealloc"):
        assert f"Instruction 'tcgen05.{instruction}' not supported on .target 'sm_121a'" in done.stderr


@pytest.mark.nightly
def test_the_program_says_when_the_device_has_no_tcgen05(tmp_path: Path) -> None:
    built = nvcc(PROBE, "100a", "-o", tmp_path / "probe")
    assert built.returncode == 0, built.stderr
    done = subprocess.run(
        [str(tmp_path / "probe")],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )
    assert (done.returncode, done.stderr) == (2, "")
    assert re.fullmatch(r"tcgen05_probe: no CUDA device: .+\n", done.stdout)


def bits(value: int, low: int, high: int) -> int:
    return value >> low & (1 << high - low + 1) - 1


@pytest.mark.nightly
def test_the_descriptors_say_what_the_program_lays_out(tmp_path: Path) -> None:
    source = tmp_path / "descriptors.cu"
    source.write_text(DESCRIPTORS.format(probe=PROBE))
    built = nvcc(source, "100a", "-o", tmp_path / "descriptors")
    assert built.returncode == 0, built.stderr
    done = subprocess.run([str(tmp_path / "descriptors")], capture_output=True, text=True, check=True)
    first, *places = done.stdout.splitlines()
    instruction, operand = map(int, first.split())

    # PTX ISA, "Instruction descriptor", .kind::f16: types of D, A and B, sizes, and nothing else
    fields = {(4, 5): 1, (7, 9): 1, (10, 12): 1, (17, 22): 64 >> 3, (24, 28): 128 >> 4}
    assert {field: bits(instruction, *field) for field in fields} == fields
    assert instruction == sum(value << low for (low, _), value in fields.items())

    # PTX ISA, "Shared memory descriptor": addresses and offsets without their four lowest bits, a constant, no swizzle
    fields = {(0, 13): 0x1234, (46, 48): 0b001, (49, 51): 0, (52, 52): 0, (53, 60): 0, (61, 63): 0}
    assert {field: bits(operand, *field) for field in fields} == fields
    leading, stride = bits(operand, 16, 29) << 4, bits(operand, 32, 45) << 4

    # PTX ISA, "Canonical layouts", K-major without swizzle: ((8,m),(T,2k)):((1T,SBO),(1,LBO)), in elements of 2 bytes
    size, chunk = 2, 8
    expected = [
        row % 8 * chunk + row // 8 * (stride // size) + k % chunk + k // chunk * (leading // size)
        for row in range(128)
        for k in range(16)
    ]
    assert list(map(int, places)) == expected
    assert sorted(expected) == list(range(128 * 16))  # each element has a place of its own


def value(code: str, pattern: str, **names: int) -> int:
    [found] = re.findall(pattern, code)
    plain = re.sub(r"(?<=\d)u\b", "", found.replace("uint64_t", "")).replace("/", "//")
    return int(eval(plain, names))  # noqa: S307 - precedence in C++ is as in Python for these operators


def tile_sides(code: str) -> dict[str, int]:
    return {side: value(code, rf"{side} = (\d+)") for side in ("TILE_M", "TILE_N")}


# PTX ISA, "Instruction descriptor": types of D, A and B of .kind::f16; of A and B of .kind::mxf4nvf4, whose other
# fields are zero for e4m3 scales from the first byte of a word on, and k = 64
BF16, NVFP4 = {4: 1, 7: 1, 10: 1}, {7: 1, 10: 1}


@pytest.mark.parametrize(
    ("pair", "types"),
    [
        ("ch10/tcgen05_gemm", BF16),
        ("ch10/tcgen05_gemm__pair", BF16),
        ("ch10/tcgen05_epilogue_overlap", BF16),
        ("ch19/nvfp4_gemm", NVFP4),
    ],
)
def test_the_pairs_descriptors_lead_to_where_tma_puts_each_element(pair: str, types: dict[int, int]) -> None:
    files = "common/cuda/tma.cuh", "common/cuda/blackwell.cuh", f"{pair.replace('/', '/optimized_')}.cu"
    code = "".join((ROOT / file).read_text() for file in files)
    tile = tile_sides(code)
    fields = types | {17: tile["TILE_N"] >> 3, 24: tile["TILE_M"] >> 4}  # .kind::mxf4nvf4: bit 27 on, m >> 7
    assert value(code, r"INSTRUCTION = (.+);", **tile) == sum(field << low for low, field in fields.items())

    # PTX ISA, "Shared memory descriptor": a constant, and the swizzle of 128 bytes
    form = value(code, r"FORM = (.+);") | value(code, r"descriptor\(tile\) \| (.+?);")
    assert [bits(form, *field) for field in ((0, 13), (46, 48), (49, 60), (61, 63))] == [0, 1, 0, 2]
    stride, step = bits(form, 32, 45) << 4, value(code, r"rows \+ (\d) \* \w") << 4

    # "Canonical layouts", K-major: eight rows of 128 bytes, the next eight `stride` further on; then bits 4 to 6 of an
    # address are those of a piece xor those of a row. A product takes 32 bytes of a row, `step` bytes further on.
    for row in range(24):
        for byte in range(128):
            place = byte // 32 * step + row // 8 * stride + row % 8 * 128 + byte % 32
            swizzled = value(code, r"int piece\) { return (.+); }", row=row, piece=byte // 16) + byte % 16
            assert place ^ (place >> 7 & 7) << 4 == swizzled


def test_nvfp4_scales_are_copied_to_where_the_product_reads_them() -> None:
    code = (ROOT / "ch19" / "optimized_nvfp4_gemm.cu").read_text()
    tile, steps, size = tile_sides(code), value(code, r"STEPS = (\d+)"), value(code, r"BLOCK = (\d+)")
    # PTX ISA, "Shared memory descriptor": a constant, no swizzle, and where the next eight rows of 16 bytes begin
    form = value(code, r"from = (.+) \| \(shared_address")
    assert [bits(form, *field) for field in ((0, 31), (46, 48), (49, 63))] == [0, 1, 0]
    stride = bits(form, 32, 45) << 4
    first = value(code, r"A_SCALES = (\w+)", **tile)
    second = value(code, r"B_SCALES = (.+?),", A_SCALES=first, STEPS=steps)
    copied: dict[tuple[int, int], tuple[str, int, int, int]] = {}  # of lane and column: what lies there
    for i in range(steps):
        of_a = value(code, r"of_a = sums \+ (.+?),", A_SCALES=first, i=i)
        of_b = value(code, r"of_b = sums \+ (.+?);", B_SCALES=second, i=i, **tile)
        next_b = value(code, r"copy_scales\(of_b \+ (\d) \* j")
        places = [("a", 0, of_a), *(("b", j, of_b + next_b * j) for j in range(tile["TILE_N"] // 128))]
        for name, block, column in places:
            for lane in range(32):  # .32x128b: 16 bytes of a row are four words of a lane
                for word in range(4):
                    at = lane % 8 * 16 + lane // 8 * stride + 4 * word
                    assert at < size
                    assert copied.setdefault((lane, column + word), (name, block, i, at)) == (name, block, i, at)
        # "Layout of the Scale Factor A Matrix for scale_vec::4X", and of B: row r is in lane r % 32, column r // 32
        for name, rows, begin in (("a", tile["TILE_M"], of_a), ("b", tile["TILE_N"], of_b)):
            for row in range(rows):
                at = row % 32 * 16 + row % 128 // 32 * 4  # as test_formats.py has it
                assert copied[row % 32, begin + row // 32] == (name, row // 128, i, at)
    columns = {column for _, column in copied}
    assert columns <= set(range(tile["TILE_N"], value(code, r"COLUMNS = (\d+)")))
