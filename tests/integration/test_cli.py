"""The command line as a user meets it: exit codes, one line for what is wrong, and a parent that stays small."""

import csv
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from small_tree import HONEST, ROOT, WRONG, Done, Tree, assert_usage, cli

from common.python.stats.sampling_plan import BUDGET_S
from common.python.workers.process import Worker, WorkerError
from tools.cli import sweeping
from tools.cli.sweeping import best, read

CLI = [sys.executable, str(ROOT / "tools" / "cli" / "benchmark_cli.py")]
QUICK = ("--iterations", "2", "--warmup", "0")
PARENT = """
import json, sys
from pathlib import Path
from tools.cli.benchmark_cli import main

try:
    main(sys.argv[2:])
except SystemExit as ended:
    foreign = [name for name in sys.modules if name.split(".")[0] in ("torch", "triton", "ch01")]
    peak = next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
    Path(sys.argv[1]).write_text(json.dumps({"code": ended.code, "foreign": foreign, "peak_mib": int(peak) / 1024}))
"""


def started(*words: str | Path) -> Done:
    """The command as a process of its own."""
    command = [*CLI, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=ROOT)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    tree = Tree(tmp_path_factory.mktemp("cli"))
    tree.pair("ch01:doubles", optimized=HONEST, padded=HONEST)
    tree.pair("ch01:wrong", optimized=WRONG)
    tree.pair("ch02:transpose")
    tree.pair("ch03:distant")
    for path in sorted((tree.root / "ch03").glob("*_distant.py")):
        wants = "from common.python.requirements import needs\nrequires = needs(gpus=100)\n"
        path.write_text(path.read_text().replace("import torch\n", f"import torch\n{wants}"))
    return tree


def run(small: Tree, *words: str | Path) -> Done:
    return cli("run", "--root", small.root, "--artifacts-dir", small.artifacts, *words)


def test_list_says_of_each_variant_what_it_does_and_whether_it_runs_here(small: Tree) -> None:
    done = cli("list", "--root", small.root)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(lines) == 9
    assert lines[2] == ["ch01:doubles", "padded", "PyTorch", "", "yes", "Doubles every element, padded."]
    distant = [line for line in lines if line[0] == "ch03:distant"]
    assert [line[3] for line in distant] == ["100 GPUs", "100 GPUs"]
    assert distant[0][4].startswith("needs 100 GPUs, found ")
    assert len(cli("list", "ch2", "--root", small.root).stdout.splitlines()) == 2


def test_list_show_and_run_give_json_and_nothing_else(small: Tree) -> None:
    done = cli("list", "--json", "--runnable", "--kind", "pytorch", "--root", small.root)
    told = json.loads(done.stdout)
    assert {line["pair"] for line in told} == {"ch01:doubles", "ch01:wrong", "ch02:transpose"}
    assert told[2] | {"mechanism": ""} == {
        "pair": "ch01:doubles", "variant": "padded", "kind": "PyTorch", "needs": "", "here": "yes", "mechanism": ""
    }  # fmt: skip
    assert json.loads(cli("list", "--json", "--kind", "cuda", "--root", small.root).stdout) == []
    assert_usage(cli("list", "--kind", "c"), "'pytorch', 'triton', 'cuda'")
    told = json.loads(cli("show", "--json", "transpose", "1", "--root", small.root).stdout)
    assert [(one["chapter"], one["pairs"]) for one in told["chapters"]] == [("ch01", ["ch01:doubles", "ch01:wrong"])]
    [shown] = told["pairs"]
    path = "ch02/baseline_transpose.py"
    assert shown["variants"][0]["files"] == {path: (small.root / path).read_text()}
    done = run(small, "doubles", "--json", *QUICK)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["pairs"] == json.loads((Path(told["folder"]) / "summary.json").read_text())["pairs"]
    assert f"results: {told['folder']}" in done.stderr


def test_roofline_tells_limits_by_a_datasheet_and_of_a_run(small: Tree, tree: Tree, tmp_path: Path) -> None:
    done = cli("roofline", "ch01:doubles", "--gpu", "H200", "--root", small.root)
    assert (done.returncode, done.stderr) == (0, "")
    assert "datasheet of H200" in done.stdout
    assert "ch01:doubles" in done.stdout
    assert cli("roofline", "ch01/optimized_doubles.py", "--gpu", "H200", "--root", small.root).stdout == done.stdout
    assert "H100 SXM: datasheet of H100 SXM" in cli("roofline", "ch01", "--gpu", "H100", "--root", small.root).stdout
    cli("roofline", "ch01:batch_size", "--gpu", "H200", "--artifacts-dir", tmp_path)
    assert "ch01:batch_size" in (tmp_path / "roofline-H200.svg").read_text()
    tree.file("ch04", "optimized_orphan", Tree.opening("ch04", "orphan", "optimized"))
    assert "no baseline_orphan.py" in cli("roofline", "ch04:orphan", "--gpu", "H200", "--root", tree.root).stdout
    assert_usage(cli("roofline", "ch01", "--gpu", "H2000", "--root", small.root), "H200")
    assert_usage(cli("roofline", "ch01", "--run", small.root), "name no target")
    assert_usage(cli("roofline", "--run", small.root), "summary.json")
    newest = Path(json.loads(run(small, "doubles", "--json", *QUICK).stdout)["folder"])
    of_run = cli("roofline", "--run", newest).stdout
    assert "ch01:doubles" in of_run
    for word in (newest, small.artifacts / "latest", "latest"):
        assert cli("roofline", word, "--artifacts-dir", small.artifacts).stdout == of_run
    assert_usage(cli("roofline", newest, "--gpu", "H200"), "name no target")


def test_sweep_measures_a_pair_at_each_value_and_a_quick_look_for_a_fifth_of_the_budget(
    small: Tree, tmp_path: Path
) -> None:
    """A figure of its size takes each value; what is no figure, no list or several pairs is refused in one line."""
    run = ("run", "--artifacts-dir", tmp_path, "--root", small.root, "--quick", "--iterations", "2", "ch01:doubles")
    done = cli(*run, "--sweep", "n=1000,2000,...,4000")
    assert done.returncode == 0, done.stderr
    budgets = [json.loads(path.read_text())["options"]["budget_s"] for path in tmp_path.glob("2*/manifest.json")]
    assert budgets == [pytest.approx(BUDGET_S / 5)] * 3
    (table,) = tmp_path.glob("sweep-*/sweep.csv")
    lines = list(csv.DictReader(table.read_text().splitlines()))
    assert [line["n"] for line in lines] == ["1000", "2000", "4000"]
    assert all(float(line["optimized_us"]) > 0 for line in lines)
    assert "<svg" in table.with_suffix(".svg").read_text()
    measured = [json.loads(file.read_text())["pairs"][0] for file in tmp_path.glob("2*/summary.json")]
    assert [(pair["size"], pair["shape"]) for pair in measured if pair["shape"] == {"n": 2000}] == [
        ("cpu,n=2000", {"n": 2000})
    ]
    assert_usage(cli(*run, "--sweep", "rows=1,2"), "its size has no scalar 'rows': it has n")
    assert_usage(cli(*run, "--sweep", "n=2,x"), "n=2,x")
    assert_usage(cli(*run, "ch01:wrong", "--sweep", "n=1,2"), "one pair")
    without = "--sweep goes without --resume, --shard and --junit"
    assert_usage(cli(*run, "--sweep", "n=1,2", "--junit", tmp_path / "junit.xml"), without)


def test_a_sweep_that_ends_early_keeps_what_was_measured_and_says_what_was_not(
    small: Tree, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """--fail-fast and --suite-timeout are about all values together."""
    done = run(small, "wrong", "--sweep", "n=8,16,...,32", "--fail-fast", *QUICK)
    assert (done.returncode, capfd.readouterr().err.splitlines()[-1]) == (1, "benchmark_cli: not measured: n=16,32")
    assert "results: " in done.stdout
    monkeypatch.setattr(sweeping, "age_s", lambda: 3600.0)
    done = run(small, "ch01:doubles", "--sweep", "n=8,16", "--suite-timeout", "1800")
    assert (done.returncode, done.stdout) == (1, "")
    assert capfd.readouterr().err.endswith("before a worker had started\nbenchmark_cli: not measured: n=8,16\n")


def test_a_sweep_marks_no_value_beside_one_that_is_too_noisy() -> None:
    rates = {1: 10.0, 2: 54.0, 4: 203.0, 8: None, 16: 300.0, 32: 320.0}
    points = [{"value": value, "optimized": rate or 146.0, "sure": rate} for value, rate in rates.items()]
    assert (best(points), best(points[:4])) == (16, None)


def test_sweep_and_set_take_dtypes_and_fractions_and_give_json(tmp_path: Path) -> None:
    """What a pair's own value is not is refused in one line; what its inputs refuse is a row."""
    size = '{"n": 4096, "dtype": "float32", "low": 0.5, "flip": False, "depths": [1, 2]}'
    tree = Tree(tmp_path)
    tree.pair(
        "ch01:x",
        inputs='{"a": draw.uniform(n, low=low, dtype=getattr(torch, dtype))}',
        cost="lambda n, dtype, low, flip, depths: Cost(host_bytes=8 * n)",
        sizes=f'{{"bench": {size}, "cpu": {size}, "test": {size}}}',
    )
    baseline = tmp_path / "ch01" / "baseline_x.py"
    baseline.write_text(baseline.read_text().replace("draw, n:", "draw, n, dtype, low, flip, depths:"))
    done = run(
        tree, "x", "--json", "--sweep", "dtype=fp64,float32,int8", "--set", "low=0.25", "--set", "flip=true", *QUICK
    )
    assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr
    told = json.loads(done.stdout)
    assert (told["key"], told["figure"], told["unit"]) == ("ch01:x", "dtype", "steps")
    assert [point["value"] for point in told["points"]] == ["fp64", "float32", "int8"]
    assert told["points"][0]["optimized_us"] > 0
    assert told["points"][2]["verdict"].startswith("failed")
    with (Path(told["folder"]) / "sweep.csv").open() as table:
        assert [line["dtype"] for line in csv.DictReader(table)] == ["fp64", "float32", "int8"]
    assert "float32" in (Path(told["folder"]) / "sweep.svg").read_text()
    shapes = [json.loads(file.read_text())["pairs"][0]["shape"] for file in tree.artifacts.glob("2*/summary.json")]
    assert json.loads(size.replace("F", "f")) | {"dtype": "float64", "low": 0.25, "flip": True} in shapes
    assert_usage(run(tree, "x", "--sweep", "dtype=bf16,abc"), "dtype is a dtype of torch's (bf16,", "float32", "'abc'")
    assert_usage(run(tree, "x", "--set", "n=fp16"), "n is a whole number from 1 on, such as 4096, and not 'fp16'")
    assert_usage(run(tree, "x", "--sweep", "low=0.1,nan"), "low is a number, such as 0.5, and not 'nan'")
    assert_usage(run(tree, "x", "--set", "flip=1"), "flip is true or false")
    assert_usage(run(tree, "x", "--set", "depths=3"), "no scalar 'depths': it has n, dtype, low, flip")
    baseline.write_text(baseline.read_text() + "__import__('os')._exit(3)\n")
    assert_usage(run(tree, "x", "--set", "n=8"), "baseline_x: the worker exited with code 3 during import")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("n=1,2,4,...,32", [1, 2, 4, 8, 16, 32]),
        ("n=0.5,1,...,4", [0.5, 1, 2, 4]),
        ("n=1000,3000,...,16000", "each is 3 times the one before, so end with 9000 or 27000"),
        ("n=5,7,...,10", "dots go on by a whole ratio of two numbers, such as 4,8,...,64"),
        ("n=0,4,...,16", "dots go on by a whole ratio of two numbers"),
        ("n=4,...,16", "dots go on by a whole ratio of two numbers"),
        ("n=bf16,...,fp16", "is not of the form"),
    ],
)
def test_dots_come_to_the_end_that_is_named_or_are_refused(text: str, values: list[float] | str) -> None:
    if isinstance(values, str):
        with pytest.raises(ValueError, match=re.escape(values)):
            read(text)
    else:
        assert read(text) == ("n", values)


@pytest.mark.parametrize("command", ["run", "verify", "list", "show", "build"])
@pytest.mark.parametrize(
    ("target", "right"),
    [
        ("ch99", "chapters are ch01 to ch20"),
        ("chapter7", "write ch07, ch07:transpose, ch07/optimized_transpose.py, all, or a folder"),
        ("ch19", "ch19 has no pairs: a pair is baseline_x.py and optimized_x.py"),
        ("ch02:transposed", "did you mean ch02:transpose?"),
        ("ch01:zzzzzz", "there are ch01:doubles, ch01:wrong"),
        ("ch01/optimized_doubles__paded.py", "did you mean optimized_doubles__padded?"),
        ("ch01/peer_doubles__cub.py", "did you mean baseline_doubles?"),
    ],
)
def test_a_target_that_names_nothing(small: Tree, command: str, target: str, right: str) -> None:
    assert_usage(cli(command, target, "--root", small.root), target.split("/")[-1].removesuffix(".py"), right)


@pytest.mark.parametrize(
    ("words", "right"),
    [
        (["--iterations", "0"], "1"),
        (["--warmup", "-1"], "0"),
        (["--timeout-multiplier", "0"], "0.01"),
        (["--seed", "x"], "int"),
        (["--budget", "nan"], "nan is no number"),
        (["--suite-timeout", "nan"], "nan is no number"),
        (["--timeout-multiplier", "inf"], "0.01<=x<="),
        (["--iterations", "9" * 23], "1<=x<="),
        (["--nproc-per-node", "9" * 11], "1<=x<="),
        (["--junit", ""], "names no file"),
        (["--size", "huge"], "'bench', 'cpu', 'test'"),
        (["--against", ""], "'' is neither a commit"),
        (["--against-python", ""], "'' is no executable file"),
        (["--sweep", ""], "'' is not of the form"),
        (["--set", "n"], "'n' is not of the form n=4096"),
        (["--set", "n=8", "--set", "n=9"], "n is given 2 times"),
        (["--set", "n=8", "--sweep", "n=1,2"], "n is given 2 times"),
        (["--bogus"], "`benchmark_cli run --help`"),
        (["--resume", "nowhere"], "name the folder of an earlier run"),
        (["--resume", ""], "names no folder"),
    ],
)
def test_an_option_out_of_its_range(small: Tree, words: list[str], right: str) -> None:
    assert_usage(run(small, "ch01:doubles", *words), words[0], right)


def test_a_command_that_does_not_exist_and_none_at_all() -> None:
    assert_usage(cli("rum"), "Did you mean 'run'?")
    assert_usage(started(), "Missing command", "--help")
    assert_usage(cli("run"), "run --targets ch1")


def test_an_artifacts_folder_that_cannot_be_written(small: Tree, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    done = cli("run", "ch01:doubles", "--root", small.root, "--artifacts-dir", tmp_path / "taken")
    assert_usage(done, str(tmp_path / "taken"), "Not a directory")


EMPTY = [(command, "--artifacts-dir", "") for command in ("build", "peak", "selftest", "run")]


@pytest.mark.parametrize("words", [*EMPTY, ("report", ""), ("compare", "", "."), ("compare", ".", "")])
def test_no_command_takes_an_empty_name_for_the_folder_that_the_user_is_in(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_usage(cli(*words), "names no folder")
    assert not list(tmp_path.iterdir())


def test_a_run_to_resume_whose_results_are_lost(small: Tree, tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_text('{"pair": "ch01:doubles", "folder": "ch01_doubles"}\n')
    assert_usage(run(small, "ch01:doubles", "--resume", tmp_path), str(tmp_path))
    (tmp_path / "journal.jsonl").write_text("not JSON\n")
    assert_usage(run(small, "ch01:doubles", "--resume", tmp_path), "resume")
    assert_usage(run(small, "--resume", tmp_path), "resume", str(tmp_path))


def test_a_run_that_is_resumed_has_its_own_targets_where_none_is_named(small: Tree, tmp_path: Path) -> None:
    options = ("--root", small.root, "--artifacts-dir", tmp_path, *QUICK)
    assert cli("run", "ch01:wrong", "ch02:transpose", *options).returncode == 1
    [folder] = tmp_path.glob("*Z")
    kept = (folder / "ch01_wrong" / "results" / "benchmark_test_results.json").read_bytes()
    first, *_ = (folder / "journal.jsonl").read_text().splitlines(keepends=True)
    (folder / "journal.jsonl").write_text(first)
    (folder / "summary.json").unlink()
    assert cli("run", "--resume", folder, *options).returncode == 1
    summary = json.loads((folder / "summary.json").read_text())
    assert [pair["name"] for pair in summary["pairs"]] == ["wrong", "transpose"]
    assert (folder / "ch01_wrong" / "results" / "benchmark_test_results.json").read_bytes() == kept
    (folder / "manifest.json").write_text("{")
    assert_usage(cli("run", "--resume", folder, *options), "manifest.json is damaged")


@pytest.mark.parametrize(
    ("words", "unbuffered"),
    [(["list"], ""), (["list"], "1"), (["--help"], ""), (["run", "ch01:doubles", *QUICK], "")],
)
def test_output_that_cannot_be_written_is_one_line(
    small: Tree, words: list[str], unbuffered: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    places = [] if words == ["--help"] else ["--root", str(small.root)]
    places += ["--artifacts-dir", str(tmp_path)] if words[0] == "run" else []
    with open("/dev/full", "w") as full:
        done = subprocess.run([*CLI, *words, *places], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert "output cannot be written: No space left on device" in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_is_like_one_to_nowhere(small: Tree, closed: str) -> None:
    line = shlex.join([*CLI, "list", "--root", str(small.root)])
    done = subprocess.run(["sh", "-c", f"{line} {closed}"], capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert (done.stdout == "") == (closed != "2>&-")


def test_a_machine_on_which_no_worker_starts(small: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Worker, "call", Mock(side_effect=WorkerError("workload", "it exited with code 1")))
    done = run(small, "ch01:doubles")
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == "benchmark_cli: no worker could be started: it exited with code 1\n"


def test_a_file_that_runs_ends_with_0_its_times_and_its_folder(small: Tree) -> None:
    done = run(small, "ch01/baseline_doubles.py", *QUICK)
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("ch01:doubles", "mean", "median", "std", "p95", "p99", "CPU"):
        assert word in done.stdout
    folder = Path(done.stdout.splitlines()[-1].removeprefix("results: "))
    assert json.loads((folder / "journal.jsonl").read_text())["status"] == "measured"


def test_a_wrong_pair_ends_with_1_and_nothing_that_can_run_with_4(small: Tree) -> None:
    wrong = run(small, "ch01:wrong", *QUICK)
    assert (wrong.returncode, wrong.stderr) == (1, "")
    assert "wrong at test size" in wrong.stdout
    nothing = run(small, "--targets", "ch3")
    assert (nothing.returncode, nothing.stderr) == (4, "")
    assert "needs 100 GPUs" in nothing.stdout


def test_the_parent_imports_neither_torch_nor_a_pair_stays_under_120_mb_and_needs_no_stream(
    small: Tree, tmp_path: Path
) -> None:
    """What a run opens takes the numbers of all three streams, which are closed."""
    words = ["run", "ch1", "--root", small.root, "--artifacts-dir", tmp_path, *QUICK]
    line = shlex.join([sys.executable, "-c", PARENT, *map(str, [tmp_path / "found", *words])])
    subprocess.run(["sh", "-c", f"{line} <&- >&- 2>&-"], timeout=600, check=True, cwd=ROOT)
    found = json.loads((tmp_path / "found").read_text())
    assert (found["code"], found["foreign"]) == (1, [])
    assert found["peak_mib"] < 120
    [summary] = tmp_path.glob("*Z/summary.json")
    assert json.loads(summary.read_text())["complete"]


def test_help_and_list_answer_at_once(small: Tree) -> None:
    """The design asks for 1.3 times; twice is allowed here, for a machine that does other things as well.

    Of four runs of each the least processor time counts: the clock on the wall would tell what else is at work here.
    """
    imports = [sys.executable, "-c", "import typer, rich, pydantic"]
    commands = (imports, [*CLI, "--help"], [*CLI, "list", "--root", str(small.root)])
    times: list[list[float]] = [[] for _ in commands]
    for _ in range(4):
        for taken, command in zip(times, commands):
            before = os.times()
            subprocess.run(command, capture_output=True, check=True, cwd=ROOT)
            taken.append(sum(os.times()[2:4]) - sum(before[2:4]))
    least, to_help, to_list = map(min, times)
    assert to_help < 2 * least
    assert to_list < 2 * least
