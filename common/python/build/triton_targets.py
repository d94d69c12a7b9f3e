"""Compile a variant's Triton kernels for a GPU that is not there: its step runs with a stand-in for triton's driver.

What a kernel is compiled for (dtypes, divisibility by 16, constexprs, warps) is decided where it is launched. So
`prepare` and `step` run in here, and every launch goes through triton's own binder and compiler; the driver under them
claims the architecture that was asked for, loads nothing and launches nothing. The author of a pair writes nothing.

Each variant is run at `bench` size on fake tensors, which have shapes but no memory, for that kernel is the one that is
timed; a step that looks at values is run at `test` size on real ones instead.

A worker of its own does it for each task, forked from a server that has imported this, and triton without interpreter.
"""

import contextlib
import importlib
import io
import os
import sys
import traceback
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import triton
from torch._subclasses.fake_tensor import FakeTensorMode
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler.errors import CompilationError, CompileTimeAssertionFailure
from triton.runtime.autotuner import Autotuner
from triton.runtime.driver import driver
from triton.runtime.errors import OutOfResources, PTXASError

from common.python import cuda
from common.python.base.text import clean
from common.python.build.record import CHIPS, KernelUse, kernel_uses, sm_of
from common.python.cuda import ERROR, first_error
from common.python.proof.preparation import VariantError
from common.python.workers.commands import Commands
from common.python.workload import Draw, Metered

TRITON = str(Path(triton.__file__).parent)
TENSORS: dict[str, Any] = {"bench": FakeTensorMode, "test": contextlib.nullcontext}  # by size
with FakeTensorMode():
    torch.empty(1).add(1)  # the first operation imports for a second: once in the server, not in every task


class StandIn:
    """What takes note of the kernels that triton compiles, and a list of those that were launched."""

    def __init__(self, output: io.StringIO) -> None:
        self.output = output
        self.compiled: dict[bytes, KernelUse] = {}  # by their machine code
        self.launched: list[KernelUse] = []

    def compiled_one(self, *, metadata: Any, metadata_group: dict[str, Any], **_: Any) -> None:
        """Note a compiled kernel: triton's compilation listener. The log of ptxas stands at the end of the output."""
        files = {Path(path).suffix: Path(path) for path in metadata_group.values()}
        use = kernel_uses(self.output.getvalue(), files[".ptx"].read_text())[-1]
        use.shared_bytes = (use.shared_bytes or 0) + metadata["shared"]
        self.compiled.setdefault(files[".cubin"].read_bytes(), use)

    def load(self, name: str, code: bytes, shared: int, device: int) -> tuple[str, str, int, int, int]:
        """Note a kernel that is about to be launched: module, function, registers, spilled words, threads allowed."""
        use = self.compiled[code]
        self.launched.append(use)
        module = name  # without one, triton would load the kernel again at every launch
        return module, name, use.registers or 0, (use.spill_bytes or 0) // 4, 1024


def first_that_works(tuner: Any, *arguments: Any, **options: Any) -> Any:
    """In place of Autotuner.run: without a GPU nothing can be timed, so the first config that compiles and fits stands
    for all of them. Like triton, it passes over those that do not."""
    tuner.nargs = dict(zip(tuner.arg_names, arguments))
    configs, refused = tuner.prune_configs(options), None
    for config in configs:
        chosen = {**options, **config.all_kwargs()}
        if config.pre_hook is not None:
            config.pre_hook({**tuner.nargs, **chosen})
        try:
            return tuner.fn.run(*arguments, **chosen)
        except (OutOfResources, CompileTimeAssertionFailure, PTXASError) as error:
            refused = refused or error
    raise refused or ValueError("the autotuner has no config")


def stand_in(sm: int, output: io.StringIO) -> StandIn:
    """Take the place of the GPU in this process, for triton and for what pairs ask torch of it."""
    gpu, chip = StandIn(output), CHIPS[sm]
    limits = {"max_shared_mem": chip.shared_bytes, "multiprocessor_count": chip.multiprocessors, "warpSize": 32}
    asked: Any = SimpleNamespace(  # of triton's CUDA driver, by a launch
        get_current_target=lambda: GPUTarget("cuda", sm, 32),
        get_current_device=lambda: 0,
        get_current_stream=lambda device: 0,
        get_active_torch_device=lambda: torch.device("cpu"),
        launcher_cls=lambda source, metadata: lambda *arguments: None,
        utils=SimpleNamespace(load_binary=gpu.load, get_device_properties=lambda device: limits),
    )
    driver.set_active(asked)
    knobs.compilation.listener = gpu.compiled_one
    Autotuner.run = first_that_works
    properties = SimpleNamespace(
        name=f"a stand-in for sm_{sm}",
        major=sm // 10,
        minor=sm % 10,
        multi_processor_count=chip.multiprocessors,
        shared_memory_per_block_optin=chip.shared_bytes,
        warp_size=32,
    )
    torch_cuda: Any = torch.cuda
    torch_cuda.get_device_properties = lambda device=None: properties
    torch_cuda.get_device_capability = lambda device=None: (properties.major, properties.minor)
    torch_cuda.current_device = lambda: 0
    cuda.load_cuda = lambda file, function: lambda *arguments: None  # a .cu file is compiled by itself
    return gpu


def record(worker: Commands, variant: str, baseline: str, arch: str, log: str, wants_gpu: bool) -> dict[str, Any]:
    """Run a variant, a module, with a stand-in GPU at the first size that works; the fields of its `Compiled`.

    A pair that `wants_gpu` may fail without one, but for what triton raises; any other has no excuse. `log` is where
    stderr goes.
    """
    worker.at(variant.rpartition(".")[2], "compilation")
    # A cache of triton's that held anything would hide the log of ptxas.
    os.environ |= {"TRITON_CACHE_DIR": f"{worker.scratch}/triton", "TRITON_DUMP_PTXAS_LOG": "1"}
    torch.set_num_threads(1)  # tasks run side by side
    warnings.simplefilter("ignore")  # torch warns that the address of a fake tensor is not real; its alignment is
    note = None
    with contextlib.redirect_stdout(io.StringIO()) as output:
        gpu = stand_in(sm_of(arch), output)
        for size in TENSORS:
            try:
                step_once(variant, baseline, size, worker.scratch)
                break
            except Exception as error:
                said, frames = told(variant, error), traceback.extract_tb(error.__traceback__)
                compiling = any(frame.filename.startswith(TRITON) for frame in frames)
                if compiling and ERROR.search(printed := Path(log).read_text()):  # by MLIR: what was wrong, and where
                    said += f": {first_error(printed)}"
                if compiling or (size == "test" and not wants_gpu):
                    return {"status": "failed", "reason": said}
                if size == "test":
                    return {"status": "skipped", "reason": f"cannot be run without a GPU: {said}"}
                note = f"compiled for the test size alone: {said}"
    if not gpu.launched:
        return {"status": "skipped", "reason": "launches no Triton kernel"}
    return {"status": "compiled", "reason": note, "kernels": gpu.launched}


def step_once(module: str, baseline: str, size: str, scratch: Path) -> None:
    """Call the step of a variant, a module, on the CPU; at `bench` size its tensors are fake."""
    workload, prepare = importlib.import_module(baseline).workload, importlib.import_module(module).prepare
    with TENSORS[size]():
        made = prepare(**workload.inputs(Draw(torch.device("cpu"), 0, scratch), **workload.sizes[size]))
        (made.step if isinstance(made, Metered) else made)()


def told(module: str, error: BaseException) -> str:
    """What went wrong, on one line, with its place in the file: in the kernel if that is known, else at the launch."""
    if isinstance(error, PTXASError):
        error.error_message = first_error(str(error))  # else it begins with how it was called
    place, reason, inner = None, None, error
    while isinstance(inner, CompilationError):  # from the kernel to the function that it calls
        place, reason, inner = located(inner, module) or place, inner.error_message or reason, inner.__cause__
    if place is None:
        return str(VariantError(module, error))
    return f"{type(error).__name__} at {place}: {clean(reason or str(inner))}"


def located(error: CompilationError, variant: str) -> str | None:
    """The file and line of a compilation error, if its function stands beside this variant, a module."""
    folder = Path(sys.modules[variant].__file__ or "").parent
    for other in list(sys.modules.values()):
        file = getattr(other, "__file__", None) or ""
        if Path(file).parent == folder and error.src and hasattr(error.node, "lineno"):
            before, found, _ = Path(file).read_text().partition(error.src.strip())
            if found:
                return f"{Path(file).name}:{before.count(chr(10)) + error.node.lineno}"
    return None
