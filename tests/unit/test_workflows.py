"""The workflows: what a user types reaches no shell as code, and a regression fails the job."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

WORKFLOWS = Path(__file__).resolve().parents[2] / ".github" / "workflows"


def scripts(text: str) -> list[str]:
    """The `run:` blocks of a workflow, without their indentation."""
    lines, found = text.splitlines(), []
    for index, line in enumerate(lines):
        if key := re.match(r"(\s*(?:- )?)run:\s*(.*)", line):
            if key[2] not in ("", "|"):
                found.append(key[2])
                continue
            deeper = []
            for following in lines[index + 1 :]:
                if following.strip() and len(following) - len(following.lstrip()) <= len(key[1]):
                    break
                deeper.append(following[len(key[1]) + 2 :])
            found.append("\n".join(deeper))
    return [script for script in found if not script.startswith("shell:")]  # `defaults: run: shell:` runs nothing


def injections(text: str) -> list[str]:
    return [script for script in scripts(text) if "${{" in script]


@pytest.mark.parametrize("path", sorted(WORKFLOWS.glob("*.yml")), ids=lambda path: path.stem)
def test_no_expression_is_pasted_into_a_script(path: Path) -> None:
    text = path.read_text()
    assert scripts(text)
    assert injections(text) == []
    assert "permissions:\n  contents: read\n" in text
    assert "pull_request_target" not in text
    for script in scripts(text):
        done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_pasted_expression_would_be_seen() -> None:
    given = "      env:\n        X: ${{ inputs.x }}\n"
    step = '    - name: x\n      run: |\n        echo "${{ inputs.x }}"\n\n        ls\n' + given
    assert injections(step) == ['echo "${{ inputs.x }}"\n\nls']
    assert injections("    - run: make ${{ inputs.x }}\n") == ["make ${{ inputs.x }}"]
    assert injections("    - run: make\n      env:\n        X: ${{ inputs.x }}\n") == []


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder in which benchmark_cli writes down the words it was called with."""
    stub = tmp_path / ".venv" / "bin" / "benchmark_cli"
    stub.parent.mkdir(parents=True)
    stub.write_text("#!/usr/bin/env bash\nprintf '%s\\n' \"$@\" > called\n")
    stub.chmod(0o755)
    (tmp_path / "ch07").mkdir()  # which `*` would become
    return tmp_path


def measure(checkout: Path, targets: str) -> tuple[int, list[str] | None]:
    """The gpu workflow's own script, run as GitHub runs it: its exit code and what it called."""
    (script,) = (script for script in scripts((WORKFLOWS / "gpu.yml").read_text()) if "TARGETS" in script)
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    environment = os.environ | {"TARGETS": targets}
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    called = checkout / "called"
    return done.returncode, called.read_text().splitlines() if called.exists() else None


@pytest.mark.parametrize(
    ("targets", "options"),
    [
        ("all", ["--targets=all"]),
        (
            " ch07  ch09:softmax\nch7/optimized_copy.py ",
            [f"--targets={x}" for x in ("ch07", "ch09:softmax")] + ["--targets=ch7/optimized_copy.py"],
        ),
        ("", []),
    ],
)
def test_targets_reach_the_command_as_they_were_typed(checkout: Path, targets: str, options: list[str]) -> None:
    code, called = measure(checkout, targets)
    assert code == 0
    assert called == ["run", *options, "--artifacts-dir", "artifacts", "--junit", "reports/junit.xml"]


@pytest.mark.parametrize(
    "targets",
    [
        "ch07; touch owned",
        "$(touch owned)",
        "`touch owned`",
        "ch07\n| touch owned",
        "*",
        "--root",
        "a'b",
        'a"b',
        "$HOME",
    ],
)
def test_what_is_no_target_runs_nothing(checkout: Path, targets: str) -> None:
    assert measure(checkout, targets) == (2, None)
    assert not (checkout / "owned").exists()


def test_a_regression_fails_the_gpu_job_and_its_results_are_kept_whatever_happens() -> None:
    text = (WORKFLOWS / "gpu.yml").read_text()
    assert "--output-csv reports/proof_of_benefit.csv --fail-on regressed,failed" in text
    assert "if: ${{ always() }}\n        uses: actions/upload-artifact@" in text
    assert "env:\n          TARGETS: ${{ inputs.targets }}\n" in text
    assert "self-hosted" in text
    assert "workflow_dispatch" in text
    assert "GITHUB_STEP_SUMMARY" not in text  # `run` and analyze_expectations write there themselves


def test_the_cpu_job_is_make_check() -> None:
    assert scripts((WORKFLOWS / "ci.yml").read_text()) == ["make check"]


def test_the_hooks_of_pre_commit_run_what_is_there() -> None:
    text = re.sub(r"entry: >-\s+", "entry: ", (WORKFLOWS.parents[1] / ".pre-commit-config.yaml").read_text())
    text = re.sub(r"\n {10}", " ", text)
    entries = [shlex.split(line) for line in re.findall(r"^ +entry: (.+)$", text, flags=re.MULTILINE)]
    assert [words[0] for words in entries] == [".venv/bin/ruff", ".venv/bin/ruff", ".venv/bin/pytest"]
    tests = [word for words in entries for word in words if word.endswith(".py")]
    assert len(tests) == 3
    assert all((WORKFLOWS.parents[1] / test).is_file() for test in tests)
    assert text.count("language: system") == 3  # nothing is downloaded
