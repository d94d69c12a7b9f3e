"""`run` leaves a report and tells a CI system; `report` makes it again from the folder alone."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest
from small_tree import HONEST, WRONG, Done, Tree, assert_usage, cli


def on_job(page: Path, *words: str | Path) -> Done:
    """The command in a CI job with this page."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GITHUB_STEP_SUMMARY", str(page))
        return cli(*words)


@dataclass
class Measured:
    """A run of two pairs, one of them wrong, as a CI job does it."""

    tree: Tree
    folder: Path
    junit: Path
    page: Path
    done: Done


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    tree = Tree(tmp_path_factory.mktemp("report"))
    tree.pair("ch01:doubles", optimized=HONEST)
    tree.pair("ch01:wrong", optimized=WRONG)
    for attempt in "abc":  # a control of three rounds is off by chance now and then, and that is not the question here
        junit, page, runs = (tree.root / f"{attempt}{name}" for name in (".xml", ".md", "_runs"))
        words = ("run", "ch1", "--root", tree.root, "--artifacts-dir", runs, "--iterations", "6", "--warmup", "0")
        done = on_job(page, *words, "--junit", junit)
        [folder] = runs.glob("*Z")
        verdicts = [pair["verdict"] for pair in json.loads((folder / "summary.json").read_text())["pairs"]]
        if verdicts[0] not in ("invalid", "too noisy"):
            break
    return Measured(tree, folder, junit, page, done)


def test_a_job_page_that_cannot_be_written_costs_no_report(
    measured: Measured, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ("ch01:doubles", "--root", measured.tree.root, "--artifacts-dir", tmp_path, "--iterations", "2")
    done = on_job(tmp_path / "nowhere" / "page.md", "run", *words)
    assert done.returncode == 1
    assert "page.md cannot be written" in capfd.readouterr().err
    assert [*tmp_path.glob("*Z/report.html")]


def test_a_run_leaves_its_report_with_the_sources_that_it_measured(measured: Measured) -> None:
    assert (measured.done.returncode, measured.done.stderr) == (1, "")
    text = (measured.folder / "report.html").read_text()
    for part in ("ch01:doubles", "MEASURED ON THE CPU, NOT ON A GPU", "return a * 2.01", "wrong at test size"):
        assert part in text


def test_a_run_tells_its_ci_system(measured: Measured) -> None:
    cases = {case.attrib["name"]: case for case in ElementTree.parse(measured.junit).getroot().iter("testcase")}
    assert cases["doubles"].find("failure") is None
    failure = cases["wrong"].find("failure")
    assert "wrong at test size" in failure.attrib["message"]
    assert measured.page.read_text() == (measured.folder / "summary.md").read_text() + "\n"


def test_report_makes_the_same_again_from_the_folder_and_tells_no_job(measured: Measured, tmp_path: Path) -> None:
    copy = shutil.copytree(measured.folder, tmp_path / "moved")
    (copy / "report.html").unlink()
    words = ("report", copy, "--root", measured.tree.root, "--junit", tmp_path / "again.xml")
    done = on_job(tmp_path / "page.md", *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"report: {copy / 'report.html'}\n"
    assert (copy / "report.html").read_text() == (measured.folder / "report.html").read_text()
    assert (tmp_path / "again.xml").read_text() == measured.junit.read_text()
    assert not (tmp_path / "page.md").exists()


def test_report_and_compare_take_the_newest_run_and_open_a_browser(
    measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, browsers = list[str](), [True, False]
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or browsers.pop(0))
    monkeypatch.chdir(measured.tree.root)
    (measured.tree.root / "artifacts").symlink_to(measured.folder.parent)
    page = Path("artifacts") / measured.folder.name / "report.html"
    for code in (0, 1):
        done = cli("report", "--open", "--root", measured.tree.root)
        assert (done.returncode, done.stdout) == (code, f"report: {page}\n")
    assert done.stderr == f"benchmark_cli: there is no browser here: open {page} in one elsewhere\n"
    assert opened == [page.resolve().as_uri()] * 2
    earlier = shutil.copytree(measured.folder, measured.tree.root / "earlier")
    assert f"B: {page.parent}\n" in cli("compare", earlier).stdout
    assert_usage(cli("compare", measured.folder), f"are both {page.parent}: name two runs")
    assert json.loads(cli("compare", measured.folder, earlier, "--json").stdout)["changes"]


def test_a_report_of_what_is_no_run(measured: Measured, tmp_path: Path) -> None:
    for words in (("report", tmp_path), ("compare", measured.folder, tmp_path)):
        assert_usage(cli(*words), f"{tmp_path} has no summary.json: name the folder of a finished run")
    cut = shutil.copytree(measured.folder, tmp_path / "cut")
    (cut / "summary.json").write_text((cut / "summary.json").read_text()[:500])
    assert_usage(cli("report", cut), "summary.json is damaged or foreign")


def test_a_junit_file_that_cannot_be_written(measured: Measured, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    assert_usage(cli("report", measured.folder, "--junit", tmp_path / "taken" / "x.xml"), "cannot write")
    for file, told in (("", "--junit"), ("taken/x.xml", "cannot"), (f"{'x' * 251}.xml", "cannot")):
        assert_usage(cli("run", "ch1", "--artifacts-dir", tmp_path / "new", "--junit", tmp_path / file), told)
    assert not (tmp_path / "new").exists()  # nothing is measured for a file that cannot be
