"""Compile the kernels that variants launch at `bench` size for a GPU that is not there, and keep their code in files.

It is done as `benchmark_cli build` does it, with that command's stand-in for a GPU and without Triton's interpreter. A
program of its own: the compute capability, such as 90, a folder, and the variants' modules, such as ch07.optimized_x.
A kernel's code goes to FOLDER/MODULE/NUMBER.KERNEL.ptx and .cubin, in the order in which the step launches them.
"""

import contextlib
import io
import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

from torch._subclasses.fake_tensor import DataDependentOutputException

from common.python.build import triton_targets


class Keeping(triton_targets.StandIn):
    """The stand-in, which keeps the code of what is launched."""

    folder: Path

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.ptx: dict[bytes, str] = {}  # by the machine code made of it

    def compiled_one(self, *, metadata_group: dict[str, Any], **others: Any) -> None:
        super().compiled_one(metadata_group=metadata_group, **others)
        files = {Path(path).suffix: Path(path) for path in metadata_group.values()}
        self.ptx[files[".cubin"].read_bytes()] = files[".ptx"].read_text()

    def load(self, name: str, code: bytes, shared: int, device: int) -> tuple[str, str, int, int, int]:
        kernel = f"{len(list(self.folder.glob('*.ptx')))}.{name}"
        (self.folder / f"{kernel}.ptx").write_text(self.ptx[code])
        (self.folder / f"{kernel}.cubin").write_bytes(code)
        return super().load(name, code, shared, device)


def main() -> None:
    sm, folder, *modules = sys.argv[1:]
    warnings.simplefilter("ignore")  # torch warns that the address of a fake tensor is not real
    os.environ["TRITON_DUMP_PTXAS_LOG"] = "1"
    triton_targets.StandIn = Keeping  # type: ignore[misc]
    for module in modules:
        Keeping.folder = Path(folder) / module
        Keeping.folder.mkdir()
        # What Triton's cache holds, such as a kernel that two files share, hides the log of ptxas, which is read here.
        os.environ["TRITON_CACHE_DIR"] = f"{folder}/triton/{module}"
        with contextlib.redirect_stdout(io.StringIO()) as output:
            triton_targets.stand_in(int(sm), output)
            baseline = re.sub(r"\.[a-z]+_", ".baseline_", module.split("__")[0])
            try:
                triton_targets.step_once(module, baseline, "bench", Path(folder))
            except DataDependentOutputException:  # of a step that reads what lies in host memory
                triton_targets.step_once(module, baseline, "test", Path(folder))


if __name__ == "__main__":
    main()
