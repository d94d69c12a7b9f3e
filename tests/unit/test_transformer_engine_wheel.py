"""A wheel on its way: built for the torch that is here, kept in parts, joined, checked and installed by setup.sh."""

import hashlib
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

import tools.transformer_engine_wheel as builder
from tools.transformer_engine_wheel import Host, keep, main

ROOT = Path(__file__).resolve().parents[2]
TORCH = version("torch")
NAME = "transformer_engine-9.9.0-py3-none-any.whl"
SETUP = """
import os, setuptools
assert os.environ["NVTE_FRAMEWORK"] == "pytorch"
assert os.path.exists(os.environ["CUDNN_PATH"] + "/include/cudnn.h")
import a_build_tool
setuptools.setup(name="transformer_engine", version="9.9.0", py_modules=["engine"])
"""
# A .venv whose Python is this one. What it would install from an index it only records; wheels go to a folder `site`.
PYTHON = """#!/bin/bash
echo "$*" >>{root}/recorded
case "$*" in *" -r "* | *" -e "*) exit ;; esac
PYTHONPATH={repository} PIP_TARGET={root}/site PIP_UPGRADE=1 PIP_NO_INDEX=1 exec {python} "$@"
"""


def write_wheel(folder: Path, name: str, module: str, content: str = "") -> Path:
    """A wheel of one module, as pip installs it."""
    folder.mkdir(parents=True, exist_ok=True)
    project, release = name.split("-")[:2]
    info = f"{project}-{release}.dist-info"
    with zipfile.ZipFile(folder / name, "w") as archive:
        archive.writestr(f"{module}.py", content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {project}\nVersion: {release}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", f"{module}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return folder / name


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout in which setup.sh can run: it, what it locks, and a .venv."""
    root = tmp_path / "checkout"
    binaries = root / ".venv" / "bin"
    binaries.mkdir(parents=True)
    shutil.copy(ROOT / "setup.sh", root)
    for name in ("requirements.lock", "requirements-cuda.lock", "pyproject.toml"):
        (root / name).touch()
    (binaries / "python").write_text(PYTHON.format(root=root, repository=ROOT, python=sys.executable))
    for name in ("python", "pip"):
        (binaries / name).touch()
        (binaries / name).chmod(0o755)
    return root


def setup(root: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    (root / "recorded").write_text("")
    return subprocess.run([str(root / "setup.sh"), *options], capture_output=True, text=True, timeout=60, check=False)


def kept(root: Path, part_bytes: int = 100, name: str = NAME, torch: str = TORCH, content: str = "") -> list[Path]:
    wheel = write_wheel(root / "built", name, "engine", content or "speed = 'high'\n")
    return keep(wheel, root / "vendor" / "wheels", torch, part_bytes)


def installs(root: Path) -> list[str]:
    return [line for line in (root / "recorded").read_text().splitlines() if " install " in line]


def test_a_wheel_is_split_and_its_parts_in_their_order_are_the_wheel(tmp_path: Path) -> None:
    *parts, torch, total = kept(tmp_path)
    content = (tmp_path / "built" / NAME).read_bytes()
    assert [part.name for part in parts] == [f"{NAME}.part{i:03}" for i in range(-(-len(content) // 100))]
    assert sorted(parts) == parts
    assert {part.stat().st_size for part in parts[:-1]} == {100}
    assert b"".join(part.read_bytes() for part in parts) == content
    assert total.read_text() == f"{hashlib.sha256(content).hexdigest()}  {NAME}\n"
    assert (torch.name, torch.read_text()) == (f"{NAME}.torch", f"{TORCH}\n")


def test_setup_joins_checks_and_installs_what_was_kept_once(tree: Path) -> None:
    kept(tree)
    done = setup(tree)
    assert done.returncode == 0, done.stderr
    assert (tree / "site" / "engine.py").read_text() == "speed = 'high'\n"
    assert (tree / "build" / "wheels" / NAME).read_bytes() == (tree / "built" / NAME).read_bytes()
    assert installs(tree)[-1].endswith(f"install -c requirements.lock build/wheels/{NAME}")  # with what it needs
    assert setup(tree).returncode == 0
    assert installs(tree) == []
    kept(tree, part_bytes=100_000, content="speed = 'higher'\n")  # under the same name, and whole
    assert setup(tree).returncode == 0
    assert (tree / "site" / "engine.py").read_text() == "speed = 'higher'\n"


def corrupt(part: Path) -> None:
    content = bytearray(part.read_bytes())
    content[50] ^= 1
    part.write_bytes(content)


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
@pytest.mark.parametrize("spoil", [corrupt, Path.unlink, lambda part: part.write_bytes(b"")])
def test_setup_refuses_a_wheel_with_a_wrong_part_in_one_line(
    tree: Path, spoil: Callable[[Path], None], options: list[str]
) -> None:
    spoil(kept(tree)[1])
    done = setup(tree, *options)
    assert done.returncode == 1
    assert re.fullmatch(rf"setup\.sh: vendor/wheels/{NAME}\.part000 .* do not give the wheel .*\n", done.stderr)
    assert not (tree / "site").exists()
    assert not (tree / ".venv" / ".stamp").exists()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    (tmp_path / "nvidia" / "cudnn" / "include").mkdir(parents=True)
    (tmp_path / "nvidia" / "cudnn" / "include" / "cudnn.h").touch()
    found = Host("2.13.0", tmp_path / "cuda", tmp_path / "nvidia" / "cudnn", (tmp_path / "nvidia" / "cudnn",))
    monkeypatch.setattr(builder, "examined", lambda: found)
    return found


def test_the_wheel_is_built_by_pip_from_the_release_and_kept_in_parts(
    tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "setup.py").write_text(SETUP)
    (source / "engine.py").write_text("speed = 'high'\n")
    for command in ("init -q", "add .", "commit -q -m one", "tag v9.9"):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *command.split()], cwd=source, check=True)
    tool = write_wheel(tmp_path, "a_build_tool-1.0-py3-none-any.whl", "a_build_tool")
    monkeypatch.setattr(builder, "REPOSITORY", f"file://{source}")
    monkeypatch.setattr(builder, "BUILD_TOOLS", (str(tool),))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_QUIET", "2")
    assert main(["9.9"], tmp_path, part_bytes=500) == 0
    folder = tmp_path / "vendor" / "wheels"
    assert (folder / f"{NAME}.part001").is_file()
    assert (folder / f"{NAME}.torch").read_text() == "2.13.0\n"
    monkeypatch.setattr(builder, "BUILD_TOOLS", (str(tmp_path / "no_tool-1.0-py3-none-any.whl"),))
    assert main(["9.9"], tmp_path) == 1


@pytest.mark.parametrize(
    ("version", "reference"),
    [("2.17", "v2.17"), ("2.8.0", "v2.8.0"), ("v2.8.0+40c69e7", "v2.8.0+40c69e7"), ("40c69e7", "40c69e7")],
)
def test_a_release_a_tag_or_a_commit_is_what_pip_would_build(
    version: str, reference: str, tmp_path: Path, host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([version, "--dry-run"], tmp_path) == 0
    assert f"git+{builder.REPOSITORY}@{reference}\n" in capsys.readouterr().out.replace("'", "")
    assert not (tmp_path / "build").exists()


@pytest.mark.parametrize("version", ["main", "2", "40c69e", "v2.8;x", "-e"])
def test_what_is_none_of_them_is_one_line_and_2(version: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([version, "--dry-run"])
    assert (ended.value.code, capsys.readouterr().err.count("\n")) == (2, 1)
