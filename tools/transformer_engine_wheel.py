"""Builds Transformer Engine for the torch that is installed: a wheel in build/transformer_engine/wheel.

The extension is linked against one torch and one CUDA, and no index has it for every pair of them. MAX_JOBS limits how
many compilers run at once, NVTE_CUDA_ARCHS (such as 90) names what they compile for, PYTHON an interpreter, CUDNN_PATH
a cuDNN. Exit codes: 0 done, 1 the build failed, 2 usage, 4 it cannot be built here.
"""

import argparse
import importlib.metadata
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from common.python.base.toolkit import find_nvcc, nvcc_version

ROOT = Path(__file__).resolve().parents[1]
DONE, FAILED, USAGE, NOTHING = 0, 1, 2, 4
REPOSITORY = "https://github.com/NVIDIA/TransformerEngine.git"
# What its pyproject.toml asks for beside frameworks and pip. They are not installed beside torch, but in a folder of
# their own, and isolation is off: pip would otherwise build against a torch that it fetches for the purpose.
BUILD_TOOLS = ("setuptools>=61", "wheel", "cmake>=3.21", "ninja", "pybind11[global]")
RELEASE, COMMIT = r"\d+\.\d+(\.\d+)?", "[0-9a-f]{7,40}"


class Unbuildable(Exception):
    """Why Transformer Engine cannot be built here."""


@dataclass(frozen=True)
class Host:
    """What of this machine the extension is built against."""

    torch: str  # the version, as it is installed
    cuda_home: Path
    cudnn: Path  # holds include/cudnn.h
    libraries: tuple[Path, ...]  # folders with include and lib, from the wheels that torch brought


def main(words: Sequence[str] | None = None, root: Path = ROOT) -> int:
    asked = parser().parse_args(words)
    if not re.fullmatch(rf"{RELEASE}|v{RELEASE}[\w.+-]*|{COMMIT}", asked.version):
        wrong = f"{asked.version!r} is no release, tag or commit: write it as 2.17, v2.17 or 40c69e7"
        print(f"build_transformer_engine_wheel.sh: {wrong}", file=sys.stderr)
        return USAGE
    try:
        host = examined()
    except Unbuildable as reason:
        print(f"build_transformer_engine_wheel.sh: {reason}", file=sys.stderr)
        return NOTHING
    work = root / "build" / "transformer_engine"
    changed = environment(host, work)
    commands = [install_tools(work), build(asked.version, work)]
    if asked.dry_run:
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in changed.items())
        for command in commands:
            print(f"would run: {settings} {shlex.join(command)}")
        return DONE
    for old in (work / "wheel").glob("*.whl"):
        old.unlink()
    for command in commands:
        if code := subprocess.run(command, env={**os.environ, **changed}, check=False).returncode:
            print(f"build_transformer_engine_wheel.sh: {shlex.join(command)} failed with {code}", file=sys.stderr)
            return FAILED
    [wheel] = (work / "wheel").glob("*.whl")
    print(f"built for torch {host.torch}: .venv/bin/pip install {wheel}")
    return DONE


def parser() -> argparse.ArgumentParser:
    name, shown = "build_transformer_engine_wheel.sh", argparse.RawDescriptionHelpFormatter
    found = argparse.ArgumentParser(name, usage=argparse.SUPPRESS, description=__doc__, formatter_class=shown)
    what = "a release of NVIDIA/TransformerEngine (2.17), a tag (v2.8.0+40c69e7) or a commit (7 to 40 hex digits)"
    found.add_argument("version", metavar="VERSION", help=what)
    found.add_argument("--dry-run", action="store_true", help="print what would be run, and run nothing")
    return found


def examined() -> Host:
    """What to build against. Raises Unbuildable."""
    if importlib.util.find_spec("torch") is None:
        raise Unbuildable(
            f"{sys.executable} has no torch: ./setup.sh installs it, PYTHON=... names another interpreter"
        )
    import torch

    version, cuda, nvcc = importlib.metadata.version("torch"), torch.version.cuda, find_nvcc()
    if cuda is None:
        raise Unbuildable(f"torch {version} is a build without CUDA: install one with it")
    if nvcc is None:
        raise Unbuildable(f"no nvcc found: install the CUDA toolkit {cuda}, as torch {version} was built with")
    if (release := nvcc_version() or "").split(".")[0] != cuda.split(".")[0]:
        raise Unbuildable(f"{nvcc} is of CUDA {release}, torch {version} of {cuda}: name one that fits with NVCC=...")
    spec = importlib.util.find_spec("nvidia")
    places = [Path(place) for place in spec.submodule_search_locations or []] if spec else []
    libraries = tuple(folder for place in places for folder in sorted(place.iterdir()) if (folder / "include").is_dir())
    named = os.environ.get("CUDNN_PATH")
    candidates = [Path(named)] if named else [*libraries, nvcc.resolve().parents[1], Path("/usr")]
    cudnn = next((folder for folder in candidates if (folder / "include" / "cudnn.h").is_file()), None)
    if cudnn is None:
        looked = named or "the wheels of torch, the CUDA toolkit and /usr"
        raise Unbuildable(f"no include/cudnn.h in {looked}: install cuDNN, or name its folder with CUDNN_PATH=...")
    return Host(version, nvcc.resolve().parents[1], cudnn, libraries)


def environment(host: Host, work: Path) -> dict[str, str]:
    """The variables that the build reads, beside those that the user set (MAX_JOBS, NVTE_CUDA_ARCHS)."""
    tools = work / "tools"
    return {
        "NVTE_FRAMEWORK": "pytorch",
        "CUDA_HOME": str(host.cuda_home),
        "CUDNN_PATH": str(host.cudnn),
        "CPATH": joined([*(folder / "include" for folder in host.libraries)], os.environ, "CPATH"),
        "LIBRARY_PATH": joined([*(folder / "lib" for folder in host.libraries)], os.environ, "LIBRARY_PATH"),
        "PYTHONPATH": joined([tools], os.environ, "PYTHONPATH"),
        "PATH": joined([tools / "bin", host.cuda_home / "bin"], os.environ, "PATH"),
    }


def joined(paths: Sequence[Path], variables: Mapping[str, str], name: str) -> str:
    """Paths before those that the variable has; an empty one would mean the working folder to a compiler."""
    return os.pathsep.join([*map(str, paths), *filter(None, [variables.get(name)])])


def install_tools(work: Path) -> list[str]:
    target = ["--target", str(work / "tools"), "--upgrade"]
    return [sys.executable, "-m", "pip", "install", *target, *BUILD_TOOLS]


def build(version: str, work: Path) -> list[str]:
    """The command that builds a release, whose tag has a `v` before it, a tag or a commit."""
    options = ["--no-build-isolation", "--no-deps", "--no-cache-dir", "--wheel-dir", str(work / "wheel")]
    reference = f"v{version}" if re.fullmatch(RELEASE, version) else version
    return [sys.executable, "-m", "pip", "wheel", *options, f"git+{REPOSITORY}@{reference}"]


if __name__ == "__main__":
    raise SystemExit(main())
