"""The tools beside `benchmark_cli`: one line for a word that is wrong; and the scripts."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_a_wrong_word_is_one_line_and_exit_code_2() -> None:
    command = [sys.executable, "-m", "tools.benchmarking.benchmark_peak", "--bogus"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "`benchmark_cli peak --help`" in done.stderr


SCRIPTS = {
    "sanitize.sh": "compute-sanitizer over",
    "build_transformer_engine_wheel.sh": "Transformer Engine",
    "profile_nsys.sh": "Prove that pairs compute the same",
    "profile_ncu.sh": "Prove that pairs compute the same",
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
