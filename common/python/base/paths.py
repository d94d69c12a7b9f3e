"""A checkout may be written to, and what pip installed may not: where compiled kernels go, and what is refused."""

import os
from pathlib import Path

DISTRIBUTION = "gpu_benchmark_harness"  # as pip spells the folder that it leaves beside what it installs
CHECKOUT_ONLY = "work in a checkout, since pip replaces what it installed, and with it what was written there"


def installed(root: Path) -> bool:
    """Whether pip copied the packages at `root` there; a checkout that is installed with -e stays a checkout."""
    return any(root.glob(f"{DISTRIBUTION}-*.dist-info"))


def build_folder(root: Path) -> Path:
    """The folder for what is compiled of the harness and the pairs at `root`.

    A user may not be allowed to write where pip installs, and what is written there would outlive an uninstall.
    """
    if not installed(root):
        return root / "build"
    caches = os.environ.get("XDG_CACHE_HOME", "")  # which counts only if it is absolute, by its specification
    return (Path(caches) if os.path.isabs(caches) else Path.home() / ".cache") / "gpu-benchmark-harness"
