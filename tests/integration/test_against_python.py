"""`run --against-python`: the same files in another environment, in workers that take turns with this one's."""

import json
import sys
import time
import venv
from pathlib import Path

import pytest
from small_tree import Done, Tree, assert_usage, cli, doing
from synthetic_run import program

from common.python.base.results import Summary
from common.python.corpus.discovery import pairs_in
from common.python.corpus.targets import Folder
from common.python.regress import against
from common.python.regress.against import with_python
from common.python.workers.parallel import at_once
from common.python.workers.process import Worker

LIMITED = ("--size", "test", "--iterations", "8", "--warmup", "1", "--seed", "7")


def python(folder: Path, body: str) -> str:
    """An interpreter that is a script."""
    return str(program(folder / "python", f"#!/bin/sh\n{body}\n"))


def run(tree: Tree, interpreter: str, *words: str) -> Done:
    place = ("--root", tree.root, "--artifacts-dir", tree.artifacts)
    return cli("run", *place, "ch01:x", *LIMITED, *words, "--against-python", interpreter)


def test_a_rung_that_is_slower_there_is_faster_here(tree: Tree, tmp_path: Path) -> None:
    """And one that is faster there ends the run with 3. A host that is too noisy gets more tries."""
    here, log = tmp_path / "there", tmp_path / "interpreters"
    venv.create(here, symlinks=True)
    (site,) = here.glob("lib/python*/site-packages")
    (site / "same.pth").write_text("\n".join(place for place in sys.path if place.endswith("site-packages")))
    slow_there = f"""
        import sys, time
        open({str(log)!r}, "a").write(sys.prefix + chr(10))
        time.sleep(0.02 if sys.prefix == {str(here)!r} else 0.003)
    """
    slow_here = slow_there.replace(" == ", " != ")
    tree.pair("ch01:x", doing("__import__('time').sleep(0.0005)"), optimized=doing(slow_there), padded=doing(slow_here))
    told = ("ch01:x: ", " against python, faster", "ch01:x padded: ", " against python, slower")
    for _ in range(5):
        done = run(tree, str(here / "bin" / "python"))
        (pair,) = Summary.model_validate_json(max(tree.artifacts.glob("2*/summary.json")).read_text()).pairs
        rows = {row.label: row for row in pair.variants}
        own, padded, ref = rows["optimized"].against, rows["padded"].against, rows["optimized@python"]
        missing = [word for word in told if word not in done.stdout]
        if done.returncode == 3 and not missing and own.low > 1.5 and padded.high < 0.7:
            break
    assert (done.returncode, missing) == (3, []), done.stdout + done.stderr
    assert (ref.name, ref.role, bool(ref.proofs)) == ("optimized_x@python", "ref", True)
    assert own.low > 1.5
    assert padded.high < 0.7
    assert {row.verdict == "invalid" for row in pair.variants} == {False}
    assert {row.status for row in pair.variants} == {"measured"}
    assert set(log.read_text().split()) == {sys.prefix, str(here)}
    assert [note for note in pair.notes if str(here / "bin" / "python") in note and "torch 2" in note]
    manifest = json.loads(max(tree.artifacts.glob("2*/manifest.json")).read_text())
    assert manifest["options"]["against_python"] == str(here / "bin" / "python")


def test_a_python_that_cannot_run_workers_is_refused_in_one_line(tree: Tree, tmp_path: Path) -> None:
    tree.pair("ch01:x")
    venv.create(tmp_path / "bare", symlinks=True)
    bare = str(tmp_path / "bare" / "bin" / "python")
    assert_usage(run(tree, bare), f"--against-python '{bare}' cannot run workers", "No module named")
    (tmp_path / "lacking").mkdir()
    (tmp_path / "lacking" / "numpy.py").write_text("raise ModuleNotFoundError('numpy')")
    lacking = python(tmp_path, f'export PYTHONPATH={tmp_path}/lacking:$PYTHONPATH\nexec {sys.executable} "$@"')
    assert_usage(run(tree, lacking), "cannot run workers (ModuleNotFoundError: numpy)")
    assert_usage(run(tree, str(tmp_path / "none")), "is no executable file")
    assert_usage(run(tree, "/bin/true"), "exited with code 0 during start): name the executable of a Python with torch")
    script = tmp_path / "script"
    script.write_text("no program")
    script.chmod(0o755)
    assert_usage(run(tree, str(script)), "is no Python")
    around = python(tmp_path, f'{sys.executable} "$@"')  # which starts Python as a process of its own
    assert_usage(run(tree, around), "exited with code 1 during start): name the executable of a Python with torch")
    for words in (["--profile"], ["--against", "HEAD"], ["--ray", "auto"], ["--resume", "x"], ["--sweep", "n=1,2"]):
        assert_usage(run(tree, "x", *words), "--against-python goes without --against, --sweep")


def test_the_end_of_time_ends_workers_in_another_python(tree: Tree, tmp_path: Path) -> None:
    tree.pair("ch01:x", "__import__('time').sleep(90)")
    settings = {"seed": 0, "reproducible": False, "python": python(tmp_path, f'exec {sys.executable} "$@"')}
    worker = Worker(tree.root, tmp_path / "scratch", tmp_path / "log", settings)
    asked, began = {"baseline": "ch01.baseline_x", "modules": {}, "size": "test"}, time.monotonic()
    with pytest.raises(TimeoutError):
        list(at_once(lambda name: worker.call(name, 80, **asked), ["load"], 1, began + 8))
    assert time.monotonic() - began < 60
    worker.kill()


def test_another_torch_or_triton_names_its_rungs(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.pair("ch01:x")

    own = against.manifest.versions()
    pairs = pairs_in(Folder(tree.root / "ch01", "ch01"))
    for changed, end in ({"torch": "9.9.0+cpu"}, "torch-9.9.0_cpu"), ({"triton": None}, "triton-None"):
        monkeypatch.setattr(against, "look_into", lambda python, own=own | changed: (python, own, True))
        (pair,) = with_python(pairs, "/x/python")
        assert [variant.name for variant in pair.variants if variant.role == "ref"] == [f"optimized_x@{end}"]
