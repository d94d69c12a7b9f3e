"""One place for kernels whoever compiles first, and no choice that was timed beside other work is left for anybody."""

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from torch._inductor import config
from torch._inductor.runtime.autotune_cache import AutotuneCache
from torch._inductor.runtime.benchmarking import Benchmarker, TritonBenchmarker
from torch._inductor.runtime.cache_dir_utils import cache_dir, triton_cache_dir
from torch._inductor.runtime.triton_heuristics import CachingAutotuner, Config
from triton.runtime.autotuner import Autotuner

from common.python.compile_caches import choose_alone, keep_no_choices, share_kernels


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_HOME"):
        monkeypatch.setenv(name, "")  # put back afterwards, whatever the test does
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    with config.patch(autotune_local_cache=True):
        yield


def test_inductor_and_triton_look_for_kernels_in_one_place(tmp_path: Path) -> None:
    assert triton_cache_dir(0).startswith(cache_dir()), "else Inductor keeps them apart by itself no more"
    share_kernels()
    assert triton_cache_dir(0) == os.environ["TRITON_CACHE_DIR"] == f"{tmp_path}/.triton/cache"
    os.environ["TRITON_CACHE_DIR"] = "/elsewhere"
    share_kernels()
    assert os.environ["TRITON_CACHE_DIR"] == "/elsewhere", "what the user has set stays"


def test_it_is_tritons_own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from triton import knobs

    monkeypatch.setenv("TRITON_HOME", str(tmp_path / "of-triton"))
    own = knobs.cache.dir
    share_kernels()
    assert os.environ["TRITON_CACHE_DIR"] == own


@pytest.fixture
def cache(tmp_path: Path) -> AutotuneCache:
    """That of the forms of one kernel."""
    found = AutotuneCache.create({}, str(tmp_path / "aa" / "kernel.py"), "hash")
    assert found is not None
    return found


def test_choices_are_not_stored_and_graphs_stay_findable_but_where_they_hold_choices(
    tmp_path: Path, cache: AutotuneCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AutotuneCache, "save", AutotuneCache.save)  # put back afterwards
    form, graphs = Config({"XBLOCK": 64}), cache_dir()
    cache.save(form, 0)
    assert list(tmp_path.rglob("*.best_config")), "else they are kept elsewhere"
    for file in tmp_path.rglob("*.best_config"):
        file.unlink()
    keep_no_choices(None)
    cache.save(form, 0)
    assert not list(tmp_path.rglob("*.best_config"))
    assert config.autotune_local_cache, "it is written into every graph, which others find"
    assert cache_dir() == graphs
    share_kernels()
    kernels = triton_cache_dir(0)
    keep_no_choices(tmp_path / "apart")
    assert (cache_dir(), triton_cache_dir(0)) == (str(tmp_path / "apart"), kernels)


def test_a_graph_that_is_stored_without_a_choice_can_be_loaded_and_its_choice_is_stored_then(
    cache: AutotuneCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a graph Inductor pickles what stores each kernel's choice, and what it cannot load is no graph to it."""
    stores = AutotuneCache.save
    with monkeypatch.context() as ahead:
        ahead.setattr(AutotuneCache, "save", stores)  # put back afterwards
        keep_no_choices(None)
        kept = pickle.dumps(cache.save)
    assert pickle.loads(kept).__func__ is stores


def test_kernels_are_timed_against_each_other_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, seen = list[str](), list[tuple[str, int]]()

    @contextmanager
    def machine() -> Iterator[None]:
        alone.append("alone")
        yield
        alone.pop()

    functions = [(Autotuner, "_bench"), (CachingAutotuner, "benchmark_all_configs")]
    functions += [
        (owner, name) for owner in (Benchmarker, TritonBenchmarker) for name in vars(owner) if "bench" in name
    ]
    functions = [(owner, name) for owner, name in functions if name != "triton_do_bench"]
    assert (Benchmarker, "benchmark_gpu") in functions
    for owner, name in functions:
        monkeypatch.setattr(owner, name, lambda *given, name=name, **more: seen.append((name, len(alone))))
    choose_alone(machine)
    choose_alone(machine)  # a process may have several benches, one after the other
    for owner, name in functions:
        getattr(owner, name)(None)
    assert seen == [(name, 1) for _, name in functions]
    assert alone == []


LATER = """
import sys
from contextlib import contextmanager
from pathlib import Path
import torch
from common.python.bench import Bench
from common.python.profiling import why
from common.python.preparation import Prepared

bench = Bench(Path.cwd(), Path.cwd(), {"seed": 1, "reproducible": False}, lambda who, what: None)
why([Prepared("a", lambda: torch.ones(1), {}, 0.0, 0.0)], torch.device("cpu"), Path("t.json"), bench.at)
early = "torch._inductor" in sys.modules
from torch._inductor.runtime import benchmarking, triton_heuristics
owners = (benchmarking.Benchmarker, "benchmark_gpu"), (triton_heuristics.CachingAutotuner, "benchmark_all_configs")
print(early, *[hasattr(vars(owner)[name], "chooses_alone") for owner, name in owners])
from importlib.machinery import SourceFileLoader
print({type(module.__loader__) is SourceFileLoader for module in (benchmarking, triton_heuristics)})
"""


def test_who_compiles_nothing_does_not_import_inductor_and_who_imports_it_later_chooses_alone_too(
    tmp_path: Path,
) -> None:
    """Importing it takes as long as importing torch, for each of an isolated pair's interpreters."""
    root = str(Path(__file__).parents[2])
    found = subprocess.run(
        [sys.executable, "-c", LATER],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": root},
        text=True,
        capture_output=True,
    )
    assert found.stdout == "False True True\n{True}\n", found.stdout + found.stderr
