"""What compilations leave on disk for later ones of the same code, less what was chosen by timing beside other work.

Inductor keeps graphs, with the kernels of all their forms, and Triton keeps kernels. Inductor also keeps which form was
the fastest: that must come from a GPU that did nothing else, so it is left to the process that is timed.
"""

import os
from pathlib import Path


def share_kernels() -> None:
    """Give Triton's kernels one place on disk, for Inductor moves it in every process where it loads one first."""
    home = Path(os.environ.get("TRITON_HOME") or Path.home())
    os.environ.setdefault("TRITON_CACHE_DIR", str(home / ".triton" / "cache"))  # which is Triton's own


def keep_no_choices(apart: Path | None) -> None:
    """From now on this process stores no choice of a kernel's form.

    In max-autotune mode the choice is part of the graph. With `apart`, a folder, graphs go there, where nobody finds
    them, and only Triton's kernels stay in the common cache.
    """
    from torch._inductor import config

    config.autotune_local_cache = False  # no part of a graph's key
    if apart is not None:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(apart)
