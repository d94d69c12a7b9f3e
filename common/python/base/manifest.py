"""What a result depends on: the machine, the versions, the sources and the environment."""

import functools
import hashlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from common.python.base.machine import Machine, machine
from common.python.base.results import Manifest
from common.python.base.toolkit import ROOT, find_program, nvcc_version

PACKAGES = (
    *("torch", "triton", "numpy", "pydantic", "nvidia-ml-py"),
    *("nvidia-cublas", "nvidia-cudnn-cu13", "nvidia-nccl-cu13"),
)
RELEVANT = (
    *("CUDA_", "NCCL_", "NVSHMEM_", "TORCH", "PYTORCH", "TRITON", "OMP_", "MKL_", "CUBLAS"),
    *("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD"),
)


def collect(
    targets: Sequence[str],
    options: Mapping[str, str | int | float | bool | None],
    sources: Iterable[Path],
    seed: int | None,
    host: Machine | None = None,
) -> Manifest:
    """The manifest of a run that starts now; callers that know the `host` give it."""
    commit, dirty = git_state(ROOT)
    host = host or machine()
    return Manifest(
        started=utc_now(),
        command=list(sys.argv),
        options=dict(options),
        targets=list(targets),
        machine=host,
        topology=topology() if len(host.gpus) > 1 else None,
        versions={**versions(), "nvcc": nvcc_version()},
        git_commit=commit,
        git_dirty=dirty,
        sources={_relative(path): digest(path) or "" for path in sources},
        environment=relevant_environment(os.environ),
        seed=seed,
    )


def sources_of(files: Sequence[Path]) -> list[Path]:
    """These files of pairs, the .cu files beside them, and all of the harness and of what pairs share."""
    beside = [cu for path in files if (cu := path.with_suffix(".cu")).exists()]
    return [*files, *beside] + [path for kind in ("*.py", "*.cuh") for path in sorted((ROOT / "common").rglob(kind))]


def digest(path: Path) -> str | None:
    """The sha256 of a file; None if there is none."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def utc_now() -> str:
    """The time in ISO 8601, UTC, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def relevant_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that change how CUDA, torch, Triton, NCCL or the allocators behave."""
    return {name: value for name, value in sorted(environment.items()) if name.startswith(RELEVANT)}


def topology() -> str | None:
    """How the GPUs of this host reach each other, as `nvidia-smi topo -m` prints it; None without that program."""
    program = find_program("nvidia-smi")
    if program is None:
        return None
    done = subprocess.run([program, "topo", "-m"], capture_output=True, text=True, check=False)
    return None if done.returncode else re.sub(r"\x1b\[\d*m", "", done.stdout)  # it underlines the first line


def git_state(root: Path) -> tuple[str | None, bool | None]:
    """The commit checked out at `root` and whether files differ from it; (None, None) if `root` heads no repository."""
    top = git(root, "rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != root.resolve():
        return None, None  # an installed copy may lie inside a repository that says nothing about it
    status = git(root, "status", "--porcelain")
    return git(root, "rev-parse", "--verify", "HEAD"), None if status is None else bool(status)


def git(root: Path, *arguments: str) -> str | None:
    """What a git command at `root` prints; None where it fails, or there is no git."""
    if shutil.which("git") is None:
        return None
    # A hook's environment names the repository that runs it; a checkout that another user owns is run here anyhow.
    ours = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or "CONFIG" in name}
    command = ["git", "--no-optional-locks", "-c", f"safe.directory={root.resolve()}", "-C", str(root), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ours)
    return None if done.returncode else done.stdout.strip()


def versions() -> dict[str, str | None]:
    """Those of Python and of the packages that results depend on; None for what is not installed."""
    return {"python": platform.python_version(), **{name: version_of(name) for name in PACKAGES}}


@functools.cache
def version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _relative(path: Path) -> str:
    path = path.resolve()
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
