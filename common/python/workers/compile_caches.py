"""What compilations leave on disk for later ones of the same code, less what was chosen by timing beside other work.

Inductor keeps graphs, with the kernels of all their forms, and Triton keeps kernels. Inductor also keeps which form was
the fastest: that must come from a GPU that did nothing else, so it is left to the process that is timed, and kept for
its later rounds and later runs. While that process compiles, other sessions are at work; only while it times kernels to
choose one are they not.
"""

import functools
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

OWN = "chooses_alone"  # marks what has been put in place of a function
CHOOSERS = {  # what times forms of a kernel, by module: all of them together, or one by one
    "triton.runtime.autotuner": "_bench",
    "torch._inductor.runtime.triton_heuristics": "benchmark_all_configs",
    "torch._inductor.runtime.benchmarking": "benchmark",
}
Alone = Callable[[], AbstractContextManager[None]]


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


def choose_alone(alone: Alone) -> None:
    """From now on Inductor and Triton's autotune time kernels against each other inside `alone`.

    And Inductor recalls what it has chosen so before, as far as it is on disk.

    Inductor takes as long to import as torch itself, so that is left to whoever compiles: a module that is not loaded
    yet is seen to when it is.
    """
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Awaited)]
    sys.meta_path.insert(0, _Awaited(alone))
    for name in CHOOSERS.keys() & sys.modules.keys():
        _see_to(alone, sys.modules[name])


class _Awaited(MetaPathFinder):
    """Finds the choosers as Python would, and sees to them once they have been loaded."""

    def __init__(self, alone: Alone) -> None:
        self.alone = alone

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in CHOOSERS else None
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                _see_to(self.alone, module)

            setattr(spec.loader, "exec_module", exec_module)  # noqa: B010  (mypy minds an assignment)
        return spec


def _see_to(alone: Alone, module: ModuleType) -> None:
    if hasattr(getattr(module, "CachingAutotuner", None), "recheck_autotune_cache"):
        _recall_descents(module)
    own = [found for found in vars(module).values() if isinstance(found, type) and found.__module__ == module.__name__]
    for owner in own:
        for name in [name for name in vars(owner) if name.startswith(CHOOSERS[module.__name__])]:
            _within(alone, owner, name)


def _recall_descents(heuristics: ModuleType) -> None:
    """From now on a graph that is found on disk has the forms in which its kernels ended when they were last tuned.

    torch 2.11 finds such a form, but forgets that a descent through its neighbours led there, or does not look if only
    one form was compiled at first: each process then descends anew, and may compile for 50 s and end elsewhere. (2.13
    remembers.)
    """
    owner: Any = heuristics.CachingAutotuner
    recheck = getattr(owner.recheck_autotune_cache, OWN, owner.recheck_autotune_cache)

    @functools.wraps(recheck)
    def recalled(self: Any, reload_kernel_from_src: Callable[[], Any]) -> None:
        forms = [compiled.config for compiled in self.compile_results]
        recheck(self, reload_kernel_from_src)
        kept = heuristics.check_autotune_cache(forms, self.filename, self.inductor_meta)[0][0]
        if not getattr(kept, "found_by_coordesc", False):
            return
        name = heuristics.triton_config_to_hashable
        ready = [compiled for compiled in self.compile_results if name(compiled.config) == name(kept)]
        if not ready:
            if self.fn.fn is None:
                self.fn = reload_kernel_from_src().fn
            ready = [self._precompile_config(kept)]
        ready[0].config.found_by_coordesc = True
        self.compile_results = ready[:1]

    setattr(recalled, OWN, recheck)
    owner.recheck_autotune_cache = recalled


def _within(alone: Alone, owner: type, name: str) -> None:
    function = getattr(vars(owner)[name], OWN, vars(owner)[name])

    @functools.wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        with alone():
            return function(*args, **kwargs)

    setattr(timed, OWN, function)
    setattr(owner, name, timed)
