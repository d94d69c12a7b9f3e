"""Chapter 2's Triton kernel is on Hopper's matrix unit, fed by TMA, and keeps what is between layers in registers."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from common.python.base.toolkit import find_program

ROOT = Path(__file__).resolve().parents[2]
CUOBJDUMP = find_program("cuobjdump")
ARCH = "sm_90a"
OPCODE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z][\w.]*)", re.MULTILINE)

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[str]]:
    """What the compiling process says of the variant, and the opcodes of the kernel as it is timed."""
    folder = tmp_path_factory.mktemp("triton")
    task = {"module": "ch02.optimized_depth_first_mlp", "baseline": "ch02.baseline_depth_first_mlp", "arch": ARCH}
    (folder / "request.json").write_text(json.dumps({"root": str(ROOT), "jobs": 1, "limit_s": 120, "tasks": [task]}))
    command = [sys.executable, "-m", "common.python.build.triton_targets", str(folder)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRITON_")}
    environment["CUDA_VISIBLE_DEVICES"] = ""
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    if CUOBJDUMP is None:
        return json.loads(done.stdout), []
    cubins = sorted(
        folder.rglob("network.cubin"), key=lambda path: path.stat().st_size
    )  # the smaller: of the test size
    shown = subprocess.run([str(CUOBJDUMP), "-sass", str(cubins[-1])], capture_output=True, text=True, check=True)
    return json.loads(done.stdout), OPCODE.findall(shown.stdout)


def test_the_kernel_is_compiled_whole_and_spills_nothing(compiled: tuple[dict[str, Any], list[str]]) -> None:
    answer, opcodes = compiled
    assert answer["error"] is None
    kernels = answer["kernels"] + answer["at_test_size"]
    assert [(one["name"], one["spill_bytes"], one["stack_bytes"]) for one in kernels] == [("network", 0, 0)] * 2
    assert answer["kernels"][0]["matrix"] == "wgmma"
    assert not any(one.startswith(("LDL", "STL")) for one in opcodes)


@pytest.mark.skipif(CUOBJDUMP is None, reason="needs cuobjdump")
def test_products_are_of_the_warp_group_and_their_tiles_come_by_tma(compiled: tuple[dict[str, Any], list[str]]) -> None:
    _, opcodes = compiled
    products = [one for one in opcodes if one.startswith("HGMMA")]
    assert len(products) == 256 // 16  # steps of k over a layer's width, for half of its columns: 64 rows a warp group
    assert {*products} == {"HGMMA.64x128x16.F32.BF16"}
    assert not any(one.startswith("HMMA") for one in opcodes)
    assert any(one.startswith("UTMALDG.2D") for one in opcodes)
    assert any(one.startswith("UTMASTG.2D") for one in opcodes)
