"""Where the CUDA toolkit is: nvcc, the folders of its headers, its release."""

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
HEADERS = ROOT / "common" / "cuda"
TOOLKIT = Path("/usr/local/cuda")


def find_nvcc() -> Path | None:
    """nvcc from the PATH, $CUDA_HOME, /usr/local/cuda, or the nvidia-cuda-nvcc wheel; $NVCC, if set, and no other."""
    return find_program(os.environ.get("NVCC") or "nvcc")


def find_program(name: str) -> Path | None:
    """A program of CUDA's: from the PATH, else from beside nvcc or where toolkits, wheels and Triton keep theirs."""
    beside = [str(Path(nvcc).resolve().parent) for nvcc in [shutil.which(os.environ.get("NVCC") or "nvcc")] if nvcc]
    folders = [*beside, *(f"{home}/bin" for home in (os.environ.get("CUDA_HOME"), TOOLKIT, *_wheel_roots()) if home)]
    folders += [f"{folder}/backends/nvidia/bin" for folder in _folders("triton")]
    found = shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders))
    return Path(found) if found else None


def include_dirs() -> list[Path]:
    """Folders of headers: ours, those of the nvcc that is used, then those of the CUDA, CCCL and CUTLASS wheels.

    A folder named with -I comes before those that nvcc searches by itself, so its own are named too: wheels of another
    release only add what the toolkit lacks.
    """
    nvcc = find_nvcc()
    bases = [HEADERS, *(_toolkit_includes(nvcc) if nvcc else ()), *(root / "include" for root in _wheel_roots())]
    bases += [folder / "source" / "include" for folder in _folders("cutlass_library")]
    return list(dict.fromkeys(path for base in bases for path in (base, base / "cccl") if path.is_dir()))


def find_header(name: str) -> Path | None:
    return next((folder / name for folder in include_dirs() if (folder / name).is_file()), None)


@functools.cache
def _toolkit_includes(nvcc: Path) -> tuple[Path, ...]:
    """The folders that this nvcc searches by itself.

    Only it knows, as the nvcc on the PATH may be a wrapper script; but without a host compiler it does not say, so the
    folder beside it is named as well.
    """
    plan = [str(nvcc), "--dryrun", "-x", "cu", "/dev/null", "-o", "/dev/null"]
    said = subprocess.run(plan, capture_output=True, text=True, check=False).stderr
    lines = [line for line in said.splitlines() if line.startswith("#$ INCLUDES=")]
    asked = [Path(folder).resolve() for line in lines for folder in re.findall(r'"-I([^"]+)"', line)]
    return *asked, nvcc.resolve().parent.parent / "include"


def _wheel_roots() -> list[Path]:
    return [root for place in _folders("nvidia") for root in sorted(place.glob("cu[0-9]*")) if root.is_dir()]


def _folders(package: str) -> list[Path]:
    """Where the modules of a package are, without importing it; none if it is not installed."""
    spec = importlib.util.find_spec(package)
    return [Path(place) for place in spec.submodule_search_locations or []] if spec else []


def nvcc_version() -> str | None:
    """The release of the nvcc that is found, such as 13.0."""
    nvcc = find_nvcc()
    release = re.search(r"release ([\d.]+)", version_text(nvcc)) if nvcc else None
    return release[1] if release else None


@functools.cache
def version_text(nvcc: Path) -> str:
    """What this nvcc prints for --version."""
    return subprocess.run([str(nvcc), "--version"], capture_output=True, text=True, check=True).stdout
