"""What compilations leave on disk for later ones of the same code, less what was chosen by timing beside other work.

Inductor keeps graphs, with the kernels of all their forms, and Triton keeps kernels. Inductor also keeps which form was
the fastest: that must come from a GPU that did nothing else, so it is left to the process that is timed, and kept for
its later rounds and later runs. While that process compiles, other sessions are at work; only while it times kernels to
choose one are they not.
"""

import functools
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

OWN = "chooses_alone"  # marks what has been put in place of a function
FORMS = "torch._inductor.runtime.triton_heuristics"  # which takes 24 ms to import, and is where anything is compiled


def share_kernels() -> None:
    """Give Triton's kernels one place on disk, for Inductor moves it in every process where it loads one first."""
    home = Path(os.environ.get("TRITON_HOME") or Path.home())
    os.environ.setdefault("TRITON_CACHE_DIR", str(home / ".triton" / "cache"))  # which is Triton's own


def keep_no_choices(apart: Path | None) -> None:
    """From now on this process stores no choice of a kernel's form.

    In max-autotune mode the choice is part of the graph. With `apart`, a folder, graphs go there, where nobody finds
    them, and only Triton's kernels stay in the common cache.
    """
    from torch._inductor.runtime.autotune_cache import AutotuneCache

    @functools.wraps(AutotuneCache.save)  # with each graph it is pickled by its name, under which others are to find it
    def forget(*choice: Any, **more: Any) -> None:
        """In the place of what stores a choice."""

    # Were the cache switched off instead, its graphs would switch it off for whoever finds them.
    AutotuneCache.save = forget  # type: ignore[method-assign]
    if apart is not None:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(apart)


def choose_alone(alone: Callable[[], AbstractContextManager[None]]) -> None:
    """From now on Inductor and Triton's autotune time kernels against each other inside `alone`.

    All forms of a kernel together, where Inductor has been imported, else one by one.
    """
    from torch._inductor.runtime import benchmarking
    from triton.runtime.autotuner import Autotuner

    timers = [found for found in vars(benchmarking).values() if isinstance(found, type)]
    _within(alone, Autotuner, "_bench")
    for timer in timers:
        for name in [name for name in vars(timer) if name.startswith("benchmark")]:
            _within(alone, timer, name)
    if FORMS in sys.modules:
        _within(alone, sys.modules[FORMS].CachingAutotuner, "benchmark_all_configs")


def _within(alone: Callable[[], AbstractContextManager[None]], owner: type, name: str) -> None:
    function = getattr(vars(owner)[name], OWN, vars(owner)[name])

    @functools.wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        with alone():
            return function(*args, **kwargs)

    setattr(timed, OWN, function)
    setattr(owner, name, timed)
