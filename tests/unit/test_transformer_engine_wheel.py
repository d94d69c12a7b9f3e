"""A wheel on its way: built for the torch that is here, kept in parts, joined, checked and installed by setup.sh."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

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


def test_a_small_wheel_stays_whole_and_parts_of_an_older_one_go(tmp_path: Path) -> None:
    kept(tmp_path, content=f"noise = {os.urandom(999)!r}\n")
    files = kept(tmp_path, part_bytes=100_000)
    assert [path.name for path in files] == [NAME, f"{NAME}.torch", f"{NAME}.sha256"]
    assert sorted((tmp_path / "vendor" / "wheels").iterdir()) == sorted(files)
    assert len(kept(tmp_path, part_bytes=len(files[0].read_bytes()))) == 3  # exactly as large as a part


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


@pytest.mark.parametrize(
    ("name", "torch", "why"),
    [
        ("transformer_engine-9.9.0-cp27-cp27m-win32.whl", TORCH, "another Python or machine"),
        (NAME, "1.0.0", rf"for torch 1\.0\.0, here is {re.escape(TORCH)}: scripts/build_transformer_engine_wheel\.sh"),
    ],
)
def test_setup_leaves_out_a_wheel_for_something_else_and_says_so(tree: Path, name: str, torch: str, why: str) -> None:
    kept(tree, name=name, torch=torch)
    done = setup(tree)
    assert done.returncode == 0, done.stderr
    assert re.search(rf"^setup: left out {name}: .*{why}", done.stdout, flags=re.MULTILINE)
    assert not (tree / "site").exists()


def test_a_dry_run_of_setup_says_what_it_would_do_and_does_nothing(tree: Path) -> None:
    kept(tree)
    done = setup(tree, "--dry-run")
    assert (done.returncode, done.stderr) == (0, "")
    would = done.stdout.splitlines()
    assert all(line.startswith("would run: ") for line in would)
    assert would[0] == "would run: pip install -r requirements.lock"
    assert re.fullmatch(rf"would run: join {NAME} vendor/wheels/{NAME}\.part000 .*", would[2])
    assert would[4] == f"would run: pip install -c requirements.lock build/wheels/{NAME}"
    assert installs(tree) == []
    assert not (tree / "build").exists()
    assert not (tree / ".venv" / ".stamp").exists()


def test_without_wheels_setup_installs_the_lock_alone(tree: Path) -> None:
    assert setup(tree).returncode == 0
    assert [re.findall(r" (-[re]) ", line) for line in installs(tree)] == [["-r"], ["-e"]]


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
    assert main(["9.9", "--part-bytes", "500"], tmp_path) == 0
    folder = tmp_path / "vendor" / "wheels"
    assert (folder / f"{NAME}.part001").is_file()
    assert (folder / f"{NAME}.torch").read_text() == "2.13.0\n"
    monkeypatch.setattr(builder, "BUILD_TOOLS", (str(tmp_path / "no_tool-1.0-py3-none-any.whl"),))
    assert main(["9.9"], tmp_path) == 1


def test_a_dry_run_prints_both_commands_with_their_variables_and_runs_neither(
    tmp_path: Path, host: Host, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CPATH", "/mine")
    assert main(["2.17", "--dry-run"], tmp_path) == 0
    tools, wheel, kept = capsys.readouterr().out.splitlines()
    assert "NVTE_FRAMEWORK=pytorch " in wheel
    assert f" CUDNN_PATH={host.cudnn} CPATH={host.cudnn}/include:/mine " in wheel
    assert f" -m pip install --target {tmp_path}/build/transformer_engine/tools " in tools
    assert "cmake" in tools
    assert wheel.endswith("git+https://github.com/NVIDIA/TransformerEngine.git@v2.17")
    assert " --no-build-isolation --no-deps " in wheel
    assert kept.endswith(f"for torch 2.13.0 in {tmp_path}/vendor/wheels, in parts of 50000000 bytes if larger")
    assert not (tmp_path / "build").exists()


@pytest.mark.parametrize(
    ("words", "right"),
    [
        ([], "VERSION"),
        (["v2.17"], "write it as 2.17"),
        (["2.17", "--fast"], "--fast"),
        (["2.17", "--part-bytes", "0"], "1"),
    ],
)
def test_a_wrong_word_is_one_line_and_exit_code_2(words: list[str], right: str) -> None:
    script = [str(ROOT / "scripts" / "build_transformer_engine_wheel.sh"), *words]
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(script, capture_output=True, text=True, check=False, env=environment, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"build_transformer_engine_wheel\.sh: .*\n", done.stderr)
    assert right in done.stderr


def examined_on(folder: Path, cuda: str | None = "13.0", nvcc: str = "13.0", cudnn: bool = True) -> str:
    """What `examined` finds where torch is built for `cuda`, and beside it are an nvcc and wheels of NVIDIA's."""
    torch, compiler = folder / "torch", folder / "toolkit" / "bin" / "nvcc"
    torch.mkdir()
    (torch / "__init__.py").write_text("from torch import version\n")
    (torch / "version.py").write_text(f"cuda = {cuda!r}\n")
    (folder / "torch-2.99.0.dist-info").mkdir()
    (folder / "torch-2.99.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.99.0\n")
    for wheel in ("nccl", "cudnn"):
        (folder / "nvidia" / wheel / "include").mkdir(parents=True)
    if cudnn:
        (folder / "nvidia" / "cudnn" / "include" / "cudnn.h").touch()
    compiler.parent.mkdir(parents=True)
    compiler.write_text(f"#!/bin/sh\necho release {nvcc}, V{nvcc}.1\n")
    compiler.chmod(0o755)
    program = (
        "from tools.transformer_engine_wheel import *\n"
        "try: print(repr(examined()))\n"
        "except Unbuildable as reason: print(repr(reason))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"from pathlib import PosixPath\n{program}"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "NVCC": str(compiler), "PYTHONPATH": f"{folder}:{ROOT}"}
        | ({} if cudnn else {"CUDNN_PATH": str(folder / "nvidia" / "cudnn")}),  # or one in /usr would be found
        timeout=60,
    )
    return done.stdout.strip() or done.stderr


def test_the_host_is_the_torch_that_is_installed_and_what_came_with_it(tmp_path: Path) -> None:
    found = examined_on(tmp_path)
    assert "torch='2.99.0'" in found
    assert f"cuda_home=PosixPath('{tmp_path}/toolkit')" in found
    assert f"cudnn=PosixPath('{tmp_path}/nvidia/cudnn')" in found
    assert f"libraries=(PosixPath('{tmp_path}/nvidia/cudnn'), PosixPath('{tmp_path}/nvidia/nccl')" in found


@pytest.mark.parametrize(
    ("lacking", "reason"),
    [
        ({"cuda": None}, "torch 2.99.0 is a build without CUDA: install one with it"),
        ({"nvcc": "12.4"}, "nvcc is of CUDA 12.4, torch 2.99.0 of 13.0: name one that fits with NVCC=..."),
        ({"cudnn": False}, "nvidia/cudnn: install cuDNN, or name its folder with CUDNN_PATH=..."),
    ],
)
def test_a_host_that_cannot_build_it_is_refused_with_the_reason(
    tmp_path: Path, lacking: dict[str, Any], reason: str
) -> None:
    found = examined_on(tmp_path, **lacking)
    assert found.startswith("Unbuildable(")
    assert reason in found


def test_where_it_cannot_be_built_that_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "find_nvcc", lambda: None)
    assert main(["2.17", "--dry-run"], tmp_path) == 4
    said = capsys.readouterr()
    assert said.out == ""
    assert re.fullmatch(r"build_transformer_engine_wheel\.sh: .*: install .*\n", said.err)
