"""The tools beside `benchmark_cli`: one line for a word that is wrong; and the scripts."""

import subprocess
import sys
from pathlib import Path

import pytest
import typer
from small_tree import cli
from synthetic_run import ROOT

from tools import transformer_engine_wheel as builder
from tools.cli.benchmark_cli import app
from tools.cli.options import repeated


def test_a_wrong_word_is_one_line_and_exit_code_2() -> None:
    command = [sys.executable, "-m", "tools.benchmarking.benchmark_peak", "--bogus"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "`benchmark_cli peak --help`" in done.stderr


def test_what_says_how_a_pair_is_measured_is_repeated_to_each_machine_of_a_cluster(tmp_path: Path) -> None:
    measured = ["--quick", "--set", "n=4", "--set", "m=2", "--seed", "3", "--no-wait"]
    words = ["ch07", "--ray", "auto", *measured, "--junit", str(tmp_path / "x.xml")]
    command = typer.main.get_command(app).commands["run"]
    assert sorted(repeated(command.make_context("run", words))) == sorted(measured)


SCRIPTS = {
    "sanitize.sh": "compute-sanitizer over",
    "build_transformer_engine_wheel.sh": "Transformer Engine",
    "profile_nsys.sh": "Prove that pairs compute the same",
    "profile_ncu.sh": "Prove that pairs compute the same",
    "sweep.sh": "Prove that pairs compute the same",
    "gpu_health.sh": "What this machine lacks for measuring",
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_is_its_command_by_the_interpreter_that_is_named(script: str, tmp_path: Path) -> None:
    command = [str(ROOT / "scripts" / script), "--help"]
    environment = {"PATH": "/usr/bin:/bin", "PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    assert (done.returncode, SCRIPTS[script] in done.stdout, done.stderr) == (0, True, "")
    environment["PYTHON"] = "/nowhere/python"
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    told = f"{script}: PYTHON=/nowhere/python is no program\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told)


@pytest.mark.parametrize(
    ("version", "reference"),
    [("2.17", "v2.17"), ("2.8.0", "v2.8.0"), ("v2.8.0+40c69e7", "v2.8.0+40c69e7"), ("40c69e7", "40c69e7")],
)
def test_a_release_a_tag_or_a_commit_is_what_pip_would_build(
    version: str, reference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "environment", lambda tools: {"NVTE_FRAMEWORK": "pytorch"})
    done = cli(version, "--dry-run", "--root", tmp_path, tool=builder.build)
    assert done.returncode == 0
    assert f"git+{builder.REPOSITORY}@{reference}\n" in done.stdout.replace("'", "")
    assert not (tmp_path / "build").exists()


@pytest.mark.parametrize("version", ["main", "2", "40c69e", "v2.8;x"])
def test_what_is_none_of_them_is_one_line_and_2(version: str) -> None:
    done = cli(version, "--dry-run", tool=builder.build)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
