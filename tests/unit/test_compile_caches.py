"""One place for kernels whoever compiles first, and no choice that was timed beside other work is left for anybody."""

import inspect
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from torch._inductor import config
from torch._inductor.runtime import triton_heuristics
from torch._inductor.runtime.autotune_cache import AutotuneCache
from torch._inductor.runtime.benchmarking import Benchmarker, TritonBenchmarker
from torch._inductor.runtime.cache_dir_utils import cache_dir, triton_cache_dir
from torch._inductor.runtime.triton_heuristics import CachingAutotuner, Config
from triton.runtime.autotuner import Autotuner

from common.python.workers.compile_caches import OWN, choose_alone, keep_no_choices, share_kernels


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


class Form:
    """Of a kernel, in the place of Triton's Config."""

    def __init__(self, block: int) -> None:
        self.block = block


class Compiled:
    def __init__(self, config: Form) -> None:
        self.config = config


class Forgets:
    """As torch 2.11 has it: the kept form is looked for among several that were compiled, and not marked."""

    def __init__(self, *blocks: int) -> None:
        self.compile_results = [Compiled(Form(block)) for block in blocks]
        self.filename, self.inductor_meta = "kernel.py", dict[str, object]()
        self.fn, self.compiled = SimpleNamespace(fn=None), list[int]()

    def recheck_autotune_cache(self, reload_kernel_from_src: Callable[[], "Forgets"]) -> None:
        kept = KEPT.check_autotune_cache([one.config for one in self.compile_results], "kernel.py", {})[0]
        if len(kept) == 1 and len(self.compile_results) > 1:
            self.compile_results = [one for one in self.compile_results if one.config.block == kept[0].block]

    def _precompile_config(self, form: Form) -> Compiled:
        assert self.fn.fn is not None, "what is found on disk has no source to compile"
        self.compiled.append(form.block)
        return Compiled(Form(form.block))


class Kept(ModuleType):
    """The module, and what it keeps on disk of this kernel: the block and whether a descent led to it."""

    CachingAutotuner = Forgets
    block: int | None = None
    descended = True

    def check_autotune_cache(self, forms: list[Form], *_: object) -> tuple[list[Form], None, dict[str, object]]:
        if self.block is None:
            return forms, None, {}
        found = next((form for form in forms if form.block == self.block), None) if not self.descended else None
        found = found or Form(self.block)
        if self.descended:
            setattr(found, "found_by_coordesc", True)  # noqa: B010  (mypy minds an assignment)
        return [found], None, {}

    def triton_config_to_hashable(self, form: Form) -> int:
        return form.block


KEPT = Kept("torch._inductor.runtime.triton_heuristics")


@pytest.mark.parametrize(
    ("compiled", "kept", "descended", "forms", "anew", "done"),
    [
        ((32, 64), 64, True, [64], [], True),  # where the descent ended where it began
        ((32,), 32, True, [32], [], True),
        ((32,), 128, True, [128], [128], True),
        ((32, 64), 64, False, [64], [], False),  # chosen among all, before any descent
        ((32, 64), None, True, [32, 64], [], False),
        ((32,), None, True, [32], [], False),
    ],
)
def test_a_form_that_a_descent_led_to_is_not_looked_for_again_by_another_process(
    compiled: tuple[int, ...],
    kept: int | None,
    descended: bool,
    forms: list[int],
    anew: list[int],
    done: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With torch 2.11 each run of two pairs did: a default run of one compiled 50 s for it, on an H200."""
    monkeypatch.setattr(Forgets, "recheck_autotune_cache", Forgets.recheck_autotune_cache)  # put back afterwards
    monkeypatch.setattr(KEPT, "block", kept, raising=False)
    monkeypatch.setattr(KEPT, "descended", descended, raising=False)
    monkeypatch.setitem(sys.modules, KEPT.__name__, KEPT)
    own = Forgets.recheck_autotune_cache
    for _ in range(2):  # a process may have several benches, one after the other
        choose_alone(nullcontext)
        assert getattr(Forgets.recheck_autotune_cache, OWN) is own
    found = Forgets(*compiled)
    source: Any = SimpleNamespace(fn=SimpleNamespace(fn="source"))
    found.recheck_autotune_cache(reload_kernel_from_src=lambda: source)
    assert [one.config.block for one in found.compile_results] == forms
    assert found.compiled == anew
    assert getattr(found.compile_results[0].config, "found_by_coordesc", False) is done


def test_a_torch_that_looks_for_no_kept_form_again_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it does not have would else be missed wherever something is compiled."""
    other = ModuleType(KEPT.__name__)
    monkeypatch.setitem(sys.modules, KEPT.__name__, other)
    for owner in (type("CachingAutotuner", (), {}), None):
        monkeypatch.setattr(other, "CachingAutotuner", owner, raising=False)
        choose_alone(nullcontext)
        assert other.__dict__["CachingAutotuner"] is owner


def test_what_is_told_of_a_kept_form_is_what_torch_has() -> None:
    """Should a later torch call these otherwise, its own memory is to be relied on."""
    for name in ("check_autotune_cache", "triton_config_to_hashable"):
        assert callable(getattr(triton_heuristics, name))
    assert callable(CachingAutotuner._precompile_config)
    parameters = inspect.signature(CachingAutotuner.recheck_autotune_cache).parameters
    assert list(parameters) == ["self", "reload_kernel_from_src"], "torch names it when it calls"


LATER = """
import sys
from contextlib import contextmanager
from pathlib import Path
import torch
from common.python.workers.commands import Bench
from common.python.profile.profiled_why import why
from common.python.proof.preparation import Prepared

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
