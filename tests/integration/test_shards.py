"""A suite in parts that are run by themselves, and all of them as one run again."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from small_tree import HONEST, Tree, assert_usage, cli
from test_cli import QUICK, ROOT

from common.python.base.results import Summary
from common.python.corpus.discovery import find_pairs
from common.python.fleet.shards import seconds_of, shard_targets
from common.python.report.artifacts import read_run
from tools.cli.benchmark_cli import app

Parts = tuple[Tree, list[Path]]


def test_every_pair_is_in_one_part_and_parts_take_equally_long() -> None:
    pairs, count = find_pairs(ROOT), 3
    parts = [shard_targets(ROOT, ["all"], f"{index}/{count}") for index in range(1, count + 1)]
    assert sorted(key for part in parts for key in part) == sorted(pair.key for pair in pairs)
    assert parts[0] == shard_targets(ROOT, ["all"], f"1/{count}")
    seconds = seconds_of(pairs)
    loads = [sum(seconds[key] for key in part) for part in parts]
    assert max(loads) - min(loads) <= max(seconds.values())


def test_a_part_of_single_files_names_them_and_no_others(tree: Tree) -> None:
    tree.pair("ch01:doubles", optimized=HONEST, padded=HONEST)
    files = ["ch01/baseline_doubles.py", "ch01/optimized_doubles.py"]
    assert shard_targets(tree.root, files, "1/1") == files


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "a/b", "1/9"])
def test_a_part_that_there_is_not_is_refused(shard: str, tree: Tree) -> None:
    tree.pair("ch01:doubles")
    right = "with 1 pair N is at most 1" if shard == "1/9" else "is not I/N"
    assert_usage(cli("run", "all", "--shard", shard, "--root", tree.root), "--shard", shard, right)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    """Both parts of three pairs; the second as if on another host."""
    tree = Tree(tmp_path_factory.mktemp("shards"))
    for key in ("ch01:doubles", "ch01:halves", "ch02:trebles"):
        tree.pair(key)
    folders = []
    for shard in ("1/2", "2/2"):
        place = tree.root / shard.replace("/", "of")
        done = cli("run", "all", "--shard", shard, *QUICK, "--root", tree.root, "--artifacts-dir", place)
        assert done.returncode == 0, done.stderr
        folders.append((place / "latest").resolve())
    rewrite(folders[1], lambda about: about["machine"].update(hostname="elsewhere", cpu="another CPU"))
    return tree, folders


def rewrite(folder: Path, change: Any) -> None:
    """Change the manifest of a run."""
    summary = json.loads((folder / "summary.json").read_text())
    change(summary["manifest"])
    (folder / "summary.json").write_text(json.dumps(summary))


def merged(tree: Tree, *folders: Path) -> tuple[int, Path]:
    done = cli("merge", *folders, "--artifacts-dir", tree.artifacts, "--root", tree.root)
    assert done.returncode < 2, done.stderr
    return done.returncode, (tree.artifacts / "latest").resolve()


def test_merged_parts_are_one_run_whose_pairs_keep_their_hosts(parts: Parts) -> None:
    tree, folders = parts
    code, folder = merged(tree, *folders)
    run, apart = read_run(folder), [read_run(one) for one in folders]
    assert (code, run.summary.complete) == (0, True)
    assert [pair.key for pair in run.summary.pairs] == ["ch01:doubles", "ch01:halves", "ch02:trebles"]
    for own in apart:
        for pair in own.summary.pairs:
            assert next(one for one in run.summary.pairs if one.key == pair.key) == pair
            assert run.about(pair) == own.summary.manifest.model_copy(update={"sources": run.summary.manifest.sources})
    assert "another CPU" in (folder / "summary.md").read_text()
    assert all(key in (folder / "report.html").read_text() for key in ("ch01:doubles", "ch02:trebles"))
    once_more = merged(tree, folder)[1]  # a merged run is a run, which can be merged too
    assert [read_run(once_more).about(pair) for pair in run.summary.pairs] == [*map(run.about, run.summary.pairs)]


def test_others_read_a_merged_run_as_any_other(parts: Parts) -> None:
    tree, folders = parts
    folder = merged(tree, *folders)[1]
    words = ["-m", "tools.analysis.analyze_expectations", "--artifacts-dir", folder, "--root", tree.root]
    held = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, cwd=ROOT)
    told = re.findall("  (new|inconclusive|unsupported)  ", held.stdout)  # inconclusive where it was too noisy
    assert (held.returncode, len(told), "unsupported" in told) == (0, 3, False), held
    assert "ch02:trebles" in cli("compare", folders[0], folder).stdout + cli("compare", folders[1], folder).stdout
    assert cli("report", folder, "--root", tree.root).returncode == 0


def test_a_part_that_is_lacking_is_named(parts: Parts) -> None:
    tree, folders = parts
    code, folder = merged(tree, folders[0])
    assert (code, read_run(folder).summary.not_run) == (1, {"shard 2/2": "no run of it was named"})


def test_pairs_in_two_runs_and_runs_of_other_code_are_refused(parts: Parts, tmp_path: Path) -> None:
    tree, folders = parts
    twice = cli("merge", *folders, folders[0], "--artifacts-dir", tmp_path, "--root", tree.root)
    assert (twice.returncode, f"is in both {folders[0]} and" in twice.stderr) == (2, True), twice.stderr
    summary = folders[0] / "summary.json"
    before = summary.read_text()
    rewrite(folders[0], lambda about: about["sources"].update({"common/python/workload.py": "other"}))
    mixed = cli("merge", *folders, "--artifacts-dir", tmp_path, "--root", tree.root)
    summary.write_text(before)
    assert (mixed.returncode, "the harness has changed (common/python/workload.py)" in mixed.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_a_part_that_goes_on_is_still_that_part(parts: Parts) -> None:
    tree, folders = parts
    done = cli("run", "--resume", folders[0], *QUICK, "--root", tree.root, "--artifacts-dir", tree.artifacts)
    assert done.returncode == 0, done.stderr
    about = Summary.model_validate_json((folders[0] / "summary.json").read_text()).manifest
    assert about.options["shard"] == "1/2"


def test_the_commands_of_the_job_files_parse() -> None:
    blocks = (ROOT / "docs" / "fleet.md").read_text().split("```")[1::2]
    scripts = [block for block in blocks if "benchmark_cli" in block]
    commands = [
        line.strip() for block in scripts for line in block.replace("\\\n", "").splitlines() if "benchmark_cli" in line
    ]
    assert len(scripts) >= 2
    assert len(commands) >= 4
    for command in commands:
        words = shlex.split(command[command.index("benchmark_cli") :])[1:]
        words = ["1/8" if "$" in word and "/" in word else word for word in words]
        typer.main.get_command(app).commands[words[0]].make_context(words[0], words[1:])  # type: ignore[attr-defined]
    for block in (block for block in blocks if block.startswith("bash")):
        subprocess.run(["bash", "-n"], input=block.removeprefix("bash\n"), text=True, check=True)
