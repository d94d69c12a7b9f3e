"""Source for the size at hand; fast reciprocals and one stepping address leave room for ten blocks of 64."""

import os
from pathlib import Path

from torch import Tensor, empty_like

from ch14.baseline_jit_specialized_solve import workload as workload
from common.python.base.paths import build_folder
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def generated(n: int) -> Path:
    """The .cu file beside this one, for systems of n unknowns; written once, as its name and text depend on n alone."""
    source = Path(__file__).with_suffix(".cu")
    file = build_folder(source.parents[1]) / "generated" / f"{source.stem}_{n}.cu"
    text = source.read_text().replace("constexpr int N = 8;", f"constexpr int N = {n};")
    if not file.exists() or file.read_text() != text:
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(f".{os.getpid()}")  # another process may be reading, or writing the same
        partial.write_text(text)
        partial.replace(file)
    return file


def prepare(a: Tensor, b: Tensor) -> Step:
    solve, x = load_cuda(str(generated(len(a))), "solve"), empty_like(b)

    def step() -> Tensor:
        solve(a, b, x, *b.shape)
        return x

    return step
