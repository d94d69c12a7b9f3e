"""Builds Transformer Engine for the torch that is installed: a wheel in build/transformer_engine/wheel.

The extension is linked against one torch and one CUDA, and no index has it for every pair of them. MAX_JOBS limits how
many compilers run at once, NVTE_CUDA_ARCHS (such as 90) names what they compile for, PYTHON an interpreter, CUDNN_PATH
a cuDNN. Exit codes: 0 done, 1 the build failed, 2 usage, 4 it cannot be built here.
"""

import importlib.metadata
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from common.python.base.toolkit import ROOT, find_nvcc, nvcc_version
from tools.cli.exits import FAILED, alone, ended
from tools.cli.options import RootOption

PROGRAM = "build_transformer_engine_wheel.sh"
REPOSITORY = "https://github.com/NVIDIA/TransformerEngine.git"
# What its pyproject.toml asks for beside frameworks and pip. They are not installed beside torch, but in a folder of
# their own, and isolation is off: pip would otherwise build against a torch that it fetches for the purpose.
BUILD_TOOLS = ("setuptools>=61", "wheel", "cmake>=3.21", "ninja", "pybind11[global]")
RELEASE, COMMIT = r"\d+\.\d+(\.\d+)?", "[0-9a-f]{7,40}"

WHAT = "A release of NVIDIA/TransformerEngine (2.17), a tag (v2.8.0+40c69e7) or a commit (7 to 40 hex digits)."


def build(
    version: Annotated[str, typer.Argument(help=WHAT)],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be run, and run nothing.")] = False,
    root: RootOption = ROOT,
) -> None:
    if not re.fullmatch(rf"{RELEASE}|v{RELEASE}[\w.+-]*|{COMMIT}", version):
        raise ValueError(f"{version!r} is no release, tag or commit: write it as 2.17, v2.17 or 40c69e7")
    work = root / "build" / "transformer_engine"
    changed = environment(work / "tools")
    reference = f"v{version}" if re.fullmatch(RELEASE, version) else version
    pip, wheels = [sys.executable, "-m", "pip"], work / "wheel"
    options = ["--no-build-isolation", "--no-deps", "--no-cache-dir", "--wheel-dir", str(wheels)]
    for old in [] if dry_run else wheels.glob("*.whl"):
        old.unlink()
    for command in (
        [*pip, "install", "--target", str(work / "tools"), "--upgrade", *BUILD_TOOLS],
        [*pip, "wheel", *options, f"git+{REPOSITORY}@{reference}"],
    ):
        if dry_run:
            settings = (f"{name}={shlex.quote(value)}" for name, value in changed.items())
            print("would run:", *settings, shlex.join(command))
        elif code := subprocess.run(command, env=os.environ | changed, check=False).returncode:
            typer.echo(f"{PROGRAM}: {shlex.join(command)} failed with {code}", err=True)
            raise typer.Exit(FAILED)
    for wheel in [] if dry_run else wheels.glob("*.whl"):
        print(f"built for torch {importlib.metadata.version('torch')}: .venv/bin/pip install {wheel}")


def environment(tools: Path) -> dict[str, str]:
    """The variables that the build reads, beside those that the user set (MAX_JOBS, NVTE_CUDA_ARCHS).

    Raises RuntimeError where torch, nvcc or cuDNN are missing or do not fit each other.
    """
    if importlib.util.find_spec("torch") is None:
        raise RuntimeError(f"{sys.executable} has no torch: ./setup.sh installs it, PYTHON=... names another Python")
    import torch

    nvcc, ours, theirs = find_nvcc(), nvcc_version(), torch.version.cuda
    if nvcc is None or ours is None or theirs is None or ours.split(".")[0] != theirs.split(".")[0]:
        found = f"torch {torch.__version__} is built with CUDA {theirs}, and nvcc here ({nvcc}) is of {ours}"
        raise RuntimeError(f"{found}: both must have one major release; NVCC=... names another")
    cuda_home, spec = nvcc.resolve().parents[1], importlib.util.find_spec("nvidia")  # the wheels that torch brought
    places = [Path(place) for place in spec.submodule_search_locations or []] if spec else []
    libraries = [folder for place in places for folder in sorted(place.iterdir()) if (folder / "include").is_dir()]
    named = os.environ.get("CUDNN_PATH")
    candidates = [Path(named)] if named else [*libraries, cuda_home, Path("/usr")]
    cudnn = next((folder for folder in candidates if (folder / "include" / "cudnn.h").is_file()), None)
    if cudnn is None:
        looked = named or "the wheels of torch, the CUDA toolkit and /usr"
        raise RuntimeError(f"no include/cudnn.h in {looked}: install cuDNN, or name its folder with CUDNN_PATH=...")
    paths = {
        "CPATH": [folder / "include" for folder in libraries],
        "LIBRARY_PATH": [folder / "lib" for folder in libraries],
        "PYTHONPATH": [tools],
        "PATH": [tools / "bin", cuda_home / "bin"],
    }
    before = {name: list(filter(None, [os.environ.get(name)])) for name in paths}  # an empty one means the folder here
    joined = {name: os.pathsep.join([*map(str, first), *before[name]]) for name, first in paths.items()}
    return {"NVTE_FRAMEWORK": "pytorch", "CUDA_HOME": str(cuda_home), "CUDNN_PATH": str(cudnn), **joined}


if __name__ == "__main__":
    ended(alone(build, __doc__), PROGRAM)
