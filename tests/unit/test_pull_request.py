"""A pull request on a machine with a GPU: what is measured, the comment, and each command of the workflow, run here."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent

import pytest
from small_tree import Tree, cli
from synthetic_run import HOSTILE, ROOT, git, manifest, pair, program, refused, summary, variant, write_run, written

from common.python.base.results import Interval, PairResult
from common.python.build import compilation
from tools.analysis import pull_request
from tools.analysis.pull_request import FIXED, MARKER, MOST_LINES, comment_text

WORKFLOW = (ROOT / ".github" / "workflows" / "gpu.yml").read_text()
MODEL = "from common.models.m import double\n\ndef prepare(a):\n    return lambda: double(a)\n"
SAME, SLOWER, FASTER = ((1.0, 0.998, 1.002), (0.9, 0.89, 0.91), (1.2, 1.19, 1.21))


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "commit", "-q", "-m", "x")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A repository whose pairs are ch01:x, which uses a model, and ch07:transpose, whose kernel includes headers."""
    tree = Tree(tmp_path / "tree")
    tree.pair("ch01:x", optimized=MODEL)
    tree.pair("ch07:transpose")
    texts = {"common/models/m.py": "def double(a):\n    return a * 2\n", "common/python/clock.py": "", "README.md": ""}
    texts |= {"ch07/optimized_transpose.cu": '#include "near.cuh"\n', "ch07/near.cuh": '# include "deep.cuh"\n'}
    written(tree.root, {**texts, "common/cuda/deep.cuh": "", ".gitignore": ".venv\nartifacts\nreports\n__pycache__\n"})
    git(tree.root, "init", "-q")
    commit(tree.root)
    monkeypatch.setattr(compilation, "LIBRARY", tree.root)
    monkeypatch.chdir(tree.root)
    return tree


def targets(base: str = "HEAD") -> tuple[list[str], str]:
    done = cli(base, tool=pull_request.targets)
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr


@pytest.mark.parametrize(
    ("file", "found"),
    [
        ("README.md", []),
        ("ch01/optimized_x.py", ["ch01:x"]),
        ("ch07/baseline_transpose.py", ["ch07:transpose"]),
        ("ch07/optimized_transpose.cu", ["ch07:transpose"]),
        ("common/cuda/deep.cuh", ["ch07:transpose"]),
        ("common/models/m.py", ["ch01:x"]),
        ("common/python/clock.py", ["ch07:transpose"]),  # of the FIXED ones, what is here
    ],
)
def test_the_targets_are_the_pairs_that_use_a_changed_file(tree: Tree, file: str, found: list[str]) -> None:
    with (tree.root / file).open("a") as end:
        end.write("# new\n")
    assert targets() == (found, "")
    commit(tree.root)
    assert targets() == ([], "")
    assert targets("HEAD~1") == (found, "")


def test_a_file_that_does_not_parse_hides_no_change_of_its_pairs_others(tree: Tree) -> None:
    (tree.root / "ch07/peer_transpose__broken.py").write_text("def")
    commit(tree.root)
    (tree.root / "ch07/near.cuh").write_text("// new")
    assert targets()[0] == ["ch07:transpose"]


def test_a_pair_that_cannot_be_compared_is_left_out_and_named(tree: Tree) -> None:
    tree.pair("ch01:new")
    tree.pair("ch01:x", optimized=MODEL, tolerance="1e-3")
    git(tree.root, "add", "--all")
    found, said = targets()
    assert found == []
    assert "ch01:new is left out: --against HEAD: none of these pairs is there" in said
    assert "ch01:x is left out: ch01:x asks for something else at HEAD" in said
    done = cli("--", "--output=x", tool=pull_request.targets)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_the_fixed_pairs_are_there_and_differ() -> None:
    for key in FIXED:
        chapter, name = key.split(":")
        assert (ROOT / chapter / f"baseline_{name}.py").is_file(), key


def compared(name: str, *against: tuple[float, float, float] | None, **facts: object) -> PairResult:
    """A pair with a rung for each of these ratios against `abc`; None is one that was too noisy there."""
    result = pair({"baseline": 100.0, "optimized": 50.0, "optimized__b": 40.0}, name=name)
    rungs = [row for row in result.variants if row.role == "optimized"][: len(against)]
    for row, found in zip(rungs, against):
        ends = dict(zip(("ratio", "low", "high"), found or ()))
        row.against = Interval(rounds=8, **ends) if found else None
        ref = variant(row.name, label=f"{row.label}@abc", role="ref", status="measured")
        told = {} if found else {"verdict": "too noisy", "reason": "anywhere"}
        result.variants.append(ref.model_copy(update={"name": f"{row.name}@abc", **told}))
    return result.model_copy(update=facts)


ABOUT = manifest(options={"against": "abc"})


def said_of(*pairs: PairResult, **facts: object) -> str:
    return comment_text(summary(pairs, ABOUT, **facts), [], {})


def test_a_comment_has_only_what_is_not_the_same_and_the_smallest_loss_that_would_have_shown() -> None:
    text = said_of(compared("two", FASTER, SAME), compared("one", SAME, SLOWER))
    assert text.startswith(f"{MARKER}\n\n## Benchmark against abc\n")
    assert [line for line in text.splitlines() if line.startswith("| ch")] == [
        "| ch07:one | b | 0.900x \\[0.890, 0.910\\] | slower |",
        "| ch07:two | optimized | 1.20x \\[1.19, 1.21\\] | faster |",
    ]
    assert "4 variants compared, 2 not the same as at the base within 1%." in text
    assert "ends 1.1% above its ratio, so a measured loss of 2.1% or more would have shown in each variant" in text
    text = said_of(compared("one", SAME, SAME), compared("two", SAME))
    assert "3 variants compared, each the same as at the base within 1%." in text
    assert "a measured loss of 1.2% or more would have shown" in text
    assert "|" not in text
    assert "larger" in said_of(compared("bytes", SLOWER, goal="memory"))


def test_a_comment_names_what_was_not_compared() -> None:
    failed, sm = refused("failed", "crash", "segfault"), refused("unsupported", "cluster", "needs sm_100")
    noisy = compared("disturbed", None, verdict="too noisy", reason="other work")
    steady = compared("steady", SAME, verdict="too noisy", reason="its speedup is anywhere")
    pairs = (failed, sm, noisy, steady, compared("one", None, SAME))
    text = said_of(*pairs, complete=False, not_run={"ch07:z": "time was up"})
    for line in (
        "- ch08:crash: failed: segfault",
        "- ch08:cluster: unsupported: needs sm_100",
        "- ch07:disturbed: too noisy: other work",
        "- ch07:one optimized<span>@</span>abc: too noisy: anywhere",
        "- ch07:z: not run: time was up",
        "**Incomplete: the run stopped before its last pair.**",
        "2 variants compared, each the same as at the base within 1%.",
    ):
        assert line in text.splitlines(), line
    assert "steady" not in text
    assert "No variant was compared with the base." in said_of(failed)
    many = said_of(*(refused("failed", f"p{n}", "x" * 9_999) for n in range(300)))
    assert f"- and {300 - MOST_LINES} more" in many
    assert len(many) < 60_000


def test_foreign_text_in_a_comment_is_text() -> None:
    other = f"@everyone #1 {HOSTILE}"
    text = said_of(compared(other, SLOWER), refused("failed", other, other))
    assert "<script" not in text
    assert text.count("<!--") == 1
    assert not re.search(r"@\w|#\d", text)
    assert "<script" not in comment_text(None, [other], {})


# The workflow.


@dataclass
class Job:
    """A job of the workflow, as far as it runs commands."""

    head: str
    runs: dict[str, str] = field(default_factory=dict)  # by the names of steps
    environments: dict[str, dict[str, str]] = field(default_factory=dict)


def jobs() -> dict[str, Job]:
    """Read from the text, by its indents: no reader of YAML is installed."""
    found = {}
    for name, text in re.findall(r"^  (\w+):.*\n((?:(?:   .*)?\n)+)", WORKFLOW.split("\njobs:\n")[1], re.MULTILINE):
        head, *steps = re.split(r"^      - ", text, flags=re.MULTILINE)
        found[name] = job = Job(head)
        for step in steps:
            if script := re.search(r"^        run: (?:\|\n((?:          .*\n|\n)+)|(.*)\n)", step, re.MULTILINE):
                title = step.split("\n")[0].removeprefix("name: ")
                job.runs[title] = dedent(script[1]) if script[1] else script[2]
                job.environments[title] = dict(re.findall(r"^          (\w+): (\$\{\{.*\}\})$", step, re.MULTILINE))
    return found


STANDS_IN = """#!{python}
import json, os, pathlib, shutil, subprocess, sys

name, words = pathlib.Path(sys.argv[0]).name, sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(json.dumps([name, *words]) + "\\n")
if name == "benchmark_cli" and os.environ["RUN"]:
    shutil.copytree(os.environ["RUN"], "artifacts/20260101T000000.000000Z")
    os.symlink("20260101T000000.000000Z", "artifacts/latest")
if name == "benchmark_cli":
    sys.exit(int(os.environ["CODE"]))
if name == "gh" and "--jq" in words:
    subprocess.run(["jq", "-r", words[-1]], input=os.environ["COMMENTS"], text=True, check=True)
"""


@dataclass
class Runner:
    """Runs the steps of a job in a checkout, as far as they go without GitHub and a GPU."""

    root: Path
    log: Path
    outputs: Path

    def step(self, job: str, name: str, code: int = 0, **told: str) -> str:
        """Run a step under the shell that the workflow names, and return what it says; `told` fills expressions."""
        known, here = jobs()[job], os.environ | {"PATH": f"{self.root / '.venv/bin'}:{os.environ['PATH']}"}
        here |= {"PYTHONPATH": str(ROOT), "GITHUB_OUTPUT": str(self.outputs), "GITHUB_REPOSITORY": "o/r"}
        here |= {key: told.get(key, "") for key in ("RUN", "CODE", "COMMENTS")}
        here |= {key: told[key] for key in known.environments[name]}
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", known.runs[name]]
        done = subprocess.run(command, cwd=self.root, env=here, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def called(self) -> list[list[str]]:
        """What was called since the last time."""
        words = [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return words


@pytest.fixture
def runner(tree: Tree, tmp_path: Path) -> Runner:
    place = tree.root / ".venv" / "bin"
    runner = Runner(tree.root, tmp_path / "log", tmp_path / "outputs")
    for name in ("make", "gh", "benchmark_cli"):
        program(place / name, STANDS_IN.format(python=sys.executable, log=str(runner.log)))
    program(place / "python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    return runner


def test_the_workflow_keeps_forks_out_and_puts_no_foreign_text_into_a_shell() -> None:
    found = jobs()
    assert list(found) == ["measure", "compare", "comment"]
    assert [list(job.runs) for job in found.values()] == [
        ["Set up", "Measure", "Hold against expectations"],
        ["Set up", "Choose what to measure", "Measure", "Write the comment"],
        ["Write the comment, in place of an earlier one"],
    ]
    assert not [script for job in found.values() for script in job.runs.values() if "${{" in script]
    assert "if: github.event_name == 'workflow_dispatch'\n" in found["measure"].head
    assert "if: github.event.pull_request.head.repo.full_name == github.repository\n" in found["compare"].head
    assert [name for name, job in found.items() if "write" in job.head] == ["comment"]
    assert "permissions:\n  contents: read\n" in WORKFLOW
    assert "needs: compare\n    if: ${{ !cancelled() && needs.compare.outputs.told == 'success' }}" in WORKFLOW
    assert f'startswith("{MARKER}")' in WORKFLOW


def test_the_named_targets_are_measured(runner: Runner, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [pair({"baseline": 100.0, "optimized": 50.0})])
    runner.step("measure", "Set up")
    runner.step("measure", "Measure", 3, TARGETS="ch07  ch09:softmax", RUN=str(run), CODE="3")
    runner.step("measure", "Hold against expectations")
    runner.step("measure", "Measure", 2, TARGETS="ch07 $(id)")
    words = ["--targets=ch07", "--targets=ch09:softmax", "--artifacts-dir", "artifacts", "--junit", "reports/junit.xml"]
    assert runner.called() == [["make", "setup"], ["benchmark_cli", "run", *words]]


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq, by which gh chooses")
def test_a_pull_request_is_measured_against_its_base_and_has_one_comment(runner: Runner, tmp_path: Path) -> None:
    (runner.root / "ch01" / "optimized_x.py").open("a").write("# new\n")
    commit(runner.root)
    base = git(runner.root, "rev-parse", "--short=12", "HEAD^1")
    runner.step("compare", "Set up")
    runner.step("compare", "Choose what to measure")
    assert runner.outputs.read_text() == f"base={base}\n"
    run = write_run(tmp_path / "run", [compared("one", SLOWER)], ABOUT)
    runner.step("compare", "Measure", 3, BASE=base, RUN=str(run), CODE="3")
    words = ["--artifacts-dir", "artifacts", "--junit", "reports/junit.xml"]
    measured = ["benchmark_cli", "run", "--targets=ch01:x", "--against", base, *words]
    assert runner.called() == [["make", "setup"], measured]
    runner.step("compare", "Write the comment")
    text = (runner.root / "reports" / "comment.md").read_text()
    assert "| ch07:one | optimized | 0.900x \\[0.890, 0.910\\] | slower |" in text
    assert commented(runner, []) == ["POST", "repos/o/r/issues/7/comments"]
    others = [{"id": 1, "user": {"login": "eve"}, "body": text}, {"id": 2, "user": {"login": BOT}, "body": "x"}]
    assert commented(runner, others) == ["POST", "repos/o/r/issues/7/comments"]
    ours = {"id": 3, "user": {"login": BOT}, "body": text}
    assert commented(runner, [*others, ours, ours]) == ["PATCH", "repos/o/r/issues/comments/3"]


BOT = "github-actions[bot]"


def commented(runner: Runner, comments: list[dict[str, object]]) -> list[str]:
    """How a comment is written where these are; empty where none is."""
    name = "Write the comment, in place of an earlier one"
    runner.step("comment", name, GH_TOKEN="x", NUMBER="7", COMMENTS=json.dumps(comments))
    listed, *wrote = runner.called()
    assert listed[:4] == ["gh", "api", "--paginate", "repos/o/r/issues/7/comments"]
    assert [call[5:] for call in wrote] == [["--field", "body=@reports/comment.md"]] * len(wrote)
    return [word for call in wrote for word in call[3:5]]


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq, by which gh chooses")
def test_a_pull_request_that_changes_no_pair_measures_nothing_and_renews_only_a_comment(runner: Runner) -> None:
    (runner.root / "README.md").write_text("new")
    commit(runner.root)
    runner.step("compare", "Choose what to measure")
    runner.step("compare", "Measure", BASE="abc")
    runner.step("compare", "Write the comment")
    assert runner.called() == []
    assert "Nothing was measured." in (runner.root / "reports" / "comment.md").read_text()
    assert commented(runner, []) == []
    ours: dict[str, object] = {"id": 3, "user": {"login": BOT}, "body": MARKER}
    assert commented(runner, [ours]) == ["PATCH", "repos/o/r/issues/comments/3"]


def test_a_machine_that_can_run_none_of_the_pairs_fails_only_where_nothing_says_why(
    runner: Runner, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run", [refused("unsupported", "cluster", "needs sm_100")], ABOUT)
    written(runner.root, {"reports/targets.txt": "ch01:x\n"})
    runner.step("compare", "Measure", 4, BASE="abc", RUN="", CODE="4")
    runner.step("compare", "Measure", BASE="abc", RUN=str(run), CODE="4")
