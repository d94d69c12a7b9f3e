"""One place for kernels whoever compiles first, and no choice that was timed beside other work is left for anybody."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch._inductor import config
from torch._inductor.runtime.cache_dir_utils import cache_dir, triton_cache_dir

from common.python.compile_caches import keep_no_choices, share_kernels


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


def test_choices_are_not_stored_and_graphs_stay_findable_but_where_they_hold_choices(tmp_path: Path) -> None:
    graphs = cache_dir()
    keep_no_choices(None)
    assert (config.autotune_local_cache, cache_dir()) == (False, graphs)
    assert "autotune_local_cache" in config._cache_config_ignore_prefix, "else no graph would be found again"
    share_kernels()
    kernels = triton_cache_dir(0)
    keep_no_choices(tmp_path / "apart")
    assert (cache_dir(), triton_cache_dir(0)) == (str(tmp_path / "apart"), kernels)
