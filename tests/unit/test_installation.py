"""What pip installed is not written to: kernels go to the user's cache, what changes chapters is refused."""

from pathlib import Path

import pytest
from small_tree import cli
from synthetic_run import ROOT, manifest, pair, program, write_run

from common.python import cuda
from common.python.base import toolkit
from common.python.base.paths import DISTRIBUTION, build_folder, installed
from common.python.build import compilation
from common.python.corpus.discovery import find_pairs
from tools.analysis.analyze_expectations import analyze

TINY = 'extern "C" int tiny(void* stream) { return 0; }\n'


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder such as site-packages, with the trace that pip leaves there."""
    root = tmp_path / "site-packages"
    (root / f"{DISTRIBUTION}-0.1.0.dist-info").mkdir(parents=True)
    return root


def test_a_checkout_keeps_what_it_compiled_and_a_package_does_not(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not installed(ROOT)
    assert build_folder(ROOT) == ROOT / "build"
    assert build_folder(tmp_path) == tmp_path / "build"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert build_folder(packages) == tmp_path / "caches" / "gpu-benchmark-harness"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for said in ("", "not/absolute"):
        monkeypatch.setenv("XDG_CACHE_HOME", said)
        assert build_folder(packages) == tmp_path / "home" / ".cache" / "gpu-benchmark-harness"


def test_compilers_write_to_that_folder_and_to_no_other(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`nvcc` is a stand-in that compiles nothing: only where the library would go is asked here."""
    writes = '#!/bin/sh\nwhile [ $# -gt 1 ]; do case $1 in -o|-MF) : > "$2";; esac; shift; done\n'
    nvcc = program(tmp_path / "nvcc", writes)
    (tmp_path / "tiny.cu").write_text(TINY)
    monkeypatch.setenv("NVCC", str(nvcc))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setattr(toolkit, "ROOT", packages)
    built = cuda.compile_source(tmp_path / "tiny.cu", "sm_90a")
    assert built.path.parent == tmp_path / "caches" / "gpu-benchmark-harness" / "cuda"
    softmax = next(pair for pair in find_pairs(ROOT) if pair.key == "ch09:softmax")
    place = compilation._place(compilation.Task(softmax, softmax.variants[0], "Triton", "sm_90a"))
    assert place.parent == tmp_path / "caches" / "gpu-benchmark-harness" / "triton"
    assert [path.name for path in packages.iterdir()] == [f"{DISTRIBUTION}-0.1.0.dist-info"]


def test_what_would_change_chapters_or_documents_is_refused_in_one_line(packages: Path) -> None:
    run = str(write_run(packages.parent / "run", [pair({"baseline": 100.0, "optimized": 50.0})], manifest()))
    for tool, words in ((analyze, ["--update", "--artifacts-dir", run]), (None, ["new", "ch07:my_pair"])):
        done = cli(*words, "--root", packages, tool=tool)
        assert done.returncode == 2
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1
        assert "work in a checkout" in done.stderr
    assert len(list(packages.iterdir())) == 1
