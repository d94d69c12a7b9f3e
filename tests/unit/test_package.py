"""What the wheel holds: the command, the harness and every chapter, whole, and nothing else. No network is needed."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from synthetic_run import ROOT, written

PACKAGES = ["benchmark_harness", "common", "tools", *(f"ch{number:02}" for number in range(1, 21))]
KINDS = {".py", ".cu", ".cuh", ".html", ".json", ".md", ".template", ".xml"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Built by the very backend that `python -m build` calls, from a copy, since it leaves a build/ behind."""
    tree, made = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("made")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, tree)
    written(tree, {"tests/unit/test_x.py": "", "artifacts/ch07_x/config.json": ""})
    code = f"from setuptools import build_meta; print(build_meta.build_wheel({str(made)!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return zipfile.ZipFile(made / done.stdout.splitlines()[-1])


def here() -> set[str]:
    """Of any kind: a pair that reads a .txt of its own would work here and fail once it is installed."""
    files = (path for name in PACKAGES for path in (ROOT / name).rglob("*") if path.is_file())
    return {str(path.relative_to(ROOT)) for path in files if "__pycache__" not in path.parts}


def test_the_wheel_holds_every_source_kernel_expectation_and_readme_and_no_test(wheel: zipfile.ZipFile) -> None:
    found = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert found == here()
    assert {Path(name).suffix for name in found} == KINDS
    for needed in ("common/cuda/kernel.cuh", "common/cuda/peaks.cu", "tools/selftest/pairs/ch01/baseline_spin.cu"):
        assert needed in found


def test_its_metadata_says_how_it_is_started_and_under_which_licence(wheel: zipfile.ZipFile) -> None:
    names = {Path(name).name: name for name in wheel.namelist() if ".dist-info/" in name}
    assert wheel.read(names["LICENSE"]).startswith(b"\n                                 Apache License\n")
    assert b"benchmark_cli = tools.cli.benchmark_cli:main" in wheel.read(names["entry_points.txt"])
    metadata = wheel.read(names["METADATA"]).decode()
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), flags=re.MULTILINE)
    assert version
    assert f"\nVersion: {version[1]}\n" in metadata
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert f"\nversion: {version[1]}\n" in (ROOT / "CITATION.cff").read_text()
