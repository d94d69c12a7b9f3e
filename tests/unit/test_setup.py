"""The way in: setup.sh answers in one line, and the lock pins what pyproject.toml asks for."""

import re
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from synthetic_run import ROOT, program


def setup(*options: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = ["env", *(f"{name}={value}" for name, value in environment.items()), str(ROOT / "setup.sh"), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("options", [["--bogus"], ["--dry-run", "--bogus"], ["--system", "--bogus"]])
def test_a_wrong_option_is_one_line_and_exit_code_2(options: list[str]) -> None:
    done = setup(*options)
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.fullmatch(r"setup\.sh: .*--.*\n", done.stderr)


def test_a_dry_run_only_prints(tmp_path: Path) -> None:
    for name in ("apt-get", "curl", "dpkg", "sudo"):
        program(tmp_path / name, f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    done = setup("--system", "--dry-run", PATH=f"{tmp_path}:/usr/bin:/bin")
    assert not (tmp_path / "ran").exists()
    if done.returncode:  # a distribution that it does not know
        assert re.fullmatch(r"setup\.sh: --system knows .*\n", done.stderr)
    else:
        assert "would run: apt-get install -y cuda-nsight-systems" in done.stdout


def test_what_the_wheels_hold_can_be_linked_under_its_plain_name(tmp_path: Path) -> None:
    library = tmp_path / "lib"
    library.mkdir()
    for name in ("libcublas.so.13", "libnvrtc-builtins.so.13.2", "libplain.so", "libplain.so.1", "libcudart_static.a"):
        (library / name).write_text(name)
    (library / "libcublas.so").symlink_to("libcublas.so.12")  # made for wheels that another release has replaced
    script = (ROOT / "setup.sh").read_text().split("\nmode=")[0]  # its functions, without the run
    command = ["bash", "-c", f"{script}\nmake_linkable $HOME_OF_WHEELS", str(ROOT / "setup.sh")]
    for _ in range(2):  # the second time as the first
        subprocess.run(command, check=True, env={"PATH": "/usr/bin:/bin", "HOME_OF_WHEELS": str(tmp_path)})
    linked = {path.name: path.read_text() for path in (tmp_path / "lib64").glob("*.so")}
    assert linked == {
        "libcublas.so": "libcublas.so.13",
        "libnvrtc-builtins.so": "libnvrtc-builtins.so.13.2",
        "libplain.so": "libplain.so",
    }


@pytest.mark.parametrize(("venv", "linked"), [(".venv", True), ("another", False)])
def test_only_the_wheels_of_our_own_venv_are_written_to(tmp_path: Path, venv: str, linked: bool) -> None:
    home = tmp_path / venv / "lib" / "python3.12" / "site-packages" / "nvidia" / "cu13"
    home.mkdir(parents=True)
    script = (ROOT / "setup.sh").read_text().split("\nmode=")[0]
    stand_in = f'nvcc_path() {{ echo "{home}/bin/nvcc"; }}'
    command = ["bash", "-c", f"{script}\n{stand_in}\ninstall_nvcc", "setup.sh"]
    subprocess.run(command, check=True, cwd=tmp_path, env={"PATH": "/usr/bin:/bin"})
    assert (home / "lib64").is_symlink() == linked


def pins() -> dict[str, list[Requirement]]:
    found: dict[str, list[Requirement]] = {}
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        if not line.startswith(("#", "-")):
            found.setdefault(Requirement(line).name, []).append(Requirement(line))
    return found


def asked_for() -> list[Requirement]:
    text = (ROOT / "pyproject.toml").read_text()
    tables = re.findall(r"^(?:dependencies|dev|peers) = \[(.*?)\]$", text, flags=re.MULTILINE | re.DOTALL)
    wanted = [Requirement(quoted) for table in tables for quoted in re.findall(r'"([^"]+)"', table)]
    return [one for one in wanted if "==" not in str(one.specifier)]  # peers with a version of their own are optional


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13"])
def test_the_lock_pins_one_fitting_version_of_everything_asked_for(python: str) -> None:
    machine = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    locked = pins()
    assert len(asked_for()) > 10
    for wanted in asked_for():
        here = [pin for pin in locked[wanted.name] if pin.marker is None or pin.marker.evaluate(machine)]
        assert len(here) == 1, f"{wanted.name} for Python {python}: {here}"
        (version,) = here[0].specifier
        assert version.operator == "=="
        assert wanted.specifier.contains(version.version), f"{here[0]} is not {wanted}"
