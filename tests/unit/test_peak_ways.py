"""What each peak times is what it says: the kernels do their work, the products are products, the counts are counts."""

import os
import subprocess
import sys

import pytest
import torch
from synthetic_run import ROOT

from common.python.peaks import matrix as peaks_matrix
from common.python.peaks.sampling import Unavailable

TYPES = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp8_rowwise", "int8")
TOLERANCE = {"fp64": 0.0, "fp32": 1e-6, "tf32": 1e-6, "bf16": 4e-3, "fp16": 1e-3, "int8": 0.0}

KERNELS = """
import numpy as np, torch
from common.python.peaks import matrix as peaks_matrix
from common.python.peaks import memory as peaks_memory

# One block whole, one in part: the kernels see blocks of 16.
x = torch.randn(24)
sums = torch.zeros(2)
peaks_memory.sum_blocks[(2,)](x, sums, 24, BLOCK=16)
torch.testing.assert_close(sums, torch.stack([x[:16].sum(), x[16:].sum()]))

out = torch.zeros(24, dtype=torch.int32)
peaks_memory.write_noise[(2,)](out, 24, BLOCK=16)
assert len(set(out.tolist())) == 24, out

x, sums = torch.randn(48), torch.zeros(2)
peaks_memory.sum_again[(2,)](x, sums, 3, 4, BLOCK=16)
blocks = x.view(3, 16).sum(1)
torch.testing.assert_close(sums, torch.stack([blocks.sum() + blocks[0], blocks.sum() + blocks[1]]))

few, many = torch.zeros(32), torch.zeros(32)
peaks_matrix.chaos[(2,)](few, 1, BLOCK=16, UNROLL=2)
peaks_matrix.chaos[(2,)](many, 200, BLOCK=16, UNROLL=2)
noise = np.arange(32, dtype=np.int64) * 0x9E3779B & 0xFFFF
c = torch.from_numpy(-1.9 + 0.1 * noise / 0x10000).double()
two = (c * c + c) ** 2 + c
torch.testing.assert_close(few.double(), two, rtol=0, atol=1e-5)
assert many.abs().max() <= 2 and len(set(many.tolist())) == 32, many  # bounded, and not settled

peaks_matrix.BYTES_TILE, peaks_matrix.BYTES_BAND = (16, 32, 16), 2
a, b = (torch.randint(-128, 128, (rows, 48), dtype=torch.int8) for rows in (64, 96))
products = torch.zeros(64, 96, dtype=torch.int32)
peaks_matrix.multiply_bytes(a, b, products)
assert torch.equal(products, a.int() @ b.int().T)

x = torch.from_numpy(noise / 0x10000).double()
for every in (0, 1, 2):
    powers = torch.zeros(32)
    peaks_matrix.powers[(2,)](powers, 1, BLOCK=16, UNROLL=2, EVERY=every)
    torch.testing.assert_close(powers.double(), (-(-x).exp2()).exp2(), rtol=1.5e-4 if every else 1e-6, atol=0)
"""


def test_the_triton_kernels_read_write_and_compute_all_that_is_counted() -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", KERNELS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("name", TYPES)
def test_what_is_timed_is_the_product_of_its_operands(name: str, transposed: bool) -> None:
    a, b, *scales = peaks_matrix.operands(name, 48, 32, 64, transposed, "cpu")
    got = peaks_matrix.product(name, a, b, *scales)()
    assert isinstance(got, torch.Tensor)
    wanted = a.double() @ b.double()
    for scale in scales:
        wanted *= scale.double()
    error = (got.double() - wanted).norm() / wanted.norm()
    assert error <= TOLERANCE.get(name, 4e-3)
    assert b.is_contiguous() != transposed
    assert (len(scales), got.shape) == (2 if name.startswith("fp8") else 0, (48, 32))


@pytest.mark.parametrize(
    ("name", "capability", "told"),
    [
        ("bf16", (7, 5), "needs sm_80, this is sm_75"),
        ("fp8", (8, 6), "needs sm_89, this is sm_86"),
        ("fp4", (9, 0), "needs sm_100, this is sm_90"),
        ("int8_sparse", (9, 0), "needs a torch with cuSPARSELt"),
        ("fp4_sparse", (10, 0), "torch has no 2:4 sparse product of fp4"),
    ],
)
def test_what_a_chip_or_a_torch_has_not_got_is_said(
    name: str, capability: tuple[int, int], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(torch.backends.cusparselt, "is_available", lambda: False)
    with pytest.raises(Unavailable) as raised:
        next(peaks_matrix.ways(name))
    assert str(raised.value) == told
