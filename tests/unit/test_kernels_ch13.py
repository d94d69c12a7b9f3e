"""What chapter 13's own kernels and metrics promise."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ch13.baseline_int8_weight_only_decode import on_int8_grid, rounding_error

ROOT = Path(__file__).resolve().parents[2]
LAUNCH = """
import contextlib, io, sys
from pathlib import Path
import torch
from common.python.build.triton_targets import stand_in
from common.python.workload import Draw
with contextlib.redirect_stdout(io.StringIO()) as output:
    stand_in(90, output)
    from ch13.optimized_adamw_fused__one_launch import prepare, workload
    prepare(**workload.inputs(Draw(torch.device("cpu"), 0, Path()), layers=1, width=int(sys.argv[1])))()
"""


@pytest.mark.parametrize(("width", "piece"), [(64, ".v4.b32"), (19, ".b32")])
def test_the_one_launch_of_adamw_moves_sixteen_bytes_at_once_where_all_lengths_allow_it(
    width: int, piece: str, tmp_path: Path
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path), "TRITON_DUMP_PTXAS_LOG": "1", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([sys.executable, "-c", LAUNCH, str(width)], cwd=ROOT, env=environment, check=True)
    code = next(tmp_path.rglob("adamw.ptx")).read_text()
    loads, stores = (re.findall(rf"{kind}\.global((?:\.v\d)?\.b\d+)", code) for kind in ("ld", "st"))
    numbers = 1024 // 128 // (4 if "v4" in piece else 1)
    assert [load for load in loads if load != ".b64"] == [piece] * 4 * numbers
    assert stores == [piece] * 3 * numbers


def test_a_weight_on_the_grid_of_eight_bits_is_a_code_times_a_power_of_two() -> None:
    weight = torch.tensor([[127.0, -3.4, 0.6], [128.0, 1.0, -3.0]])
    assert on_int8_grid(weight).tolist() == [[127.0, -3.0, 1.0], [128.0, 0.0, -4.0]]


def test_what_eight_bits_cost_is_the_error_of_a_uniform_rounding() -> None:
    """A code's error is 1 / sqrt(12) on average, whatever x; of a weight of ones and a 127, which is exact, nothing."""
    torch.manual_seed(0)
    x, weight = torch.randn(64, 256), torch.rand(512, 256) * 254 - 127
    weight[:, 0] = 127
    assert rounding_error(x, weight) == pytest.approx((1 / 12) ** 0.5 / (127 / 3**0.5), rel=0.05)
    assert rounding_error(x, weight.round()) == 0.0
