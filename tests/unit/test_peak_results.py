"""A GPU's page of peaks is made of its survey, names no machine, and explains what differs from the design's facts."""

import shutil
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from synthetic_run import HOSTILE, STARTED, manifest

from common.python.peaks import store as peak_store
from common.python.peaks.store import CPU, Curve, Peak, Point, Survey
from tools.documentation import peak_results
from tools.documentation.peak_results import (
    BEGIN,
    END,
    EXPECTED,
    MESSAGE,
    current,
    keep,
    main,
    unexplained,
)

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "results").glob("*/peaks.md"))
PAGE = f"# Peaks\n\nBefore.\n\n{BEGIN}\n{END}\n\n- **`tf32`.** Bursts.\n"
MEASURED = datetime.fromisoformat(STARTED) + timedelta(seconds=9)


def peak(name: str, value: float, unit: str = "B/s", **facts: Any) -> Peak:
    known = {"low": value * 0.99, "high": value * 1.01, "fastest": value * 1.02, "method": "by hand"}
    return Peak.model_validate({"name": name, "unit": unit, "value": value} | known | facts)


def survey(*peaks: Peak, **facts: Any) -> Survey:
    known = {"device": "NVIDIA H200", "uuid": "GPU-1", "measured": MEASURED, "seconds": 51.2, "peaks": list(peaks)}
    return Survey.model_validate(known | {"versions": {"driver": "580", "torch": "2.11.0", "NCCL": None}} | facts)


def messages(us: float) -> Curve:
    sizes = (2**10, MESSAGE, 2**30)
    points = [Point(bytes=size, seconds=us * 1e-6, low=us * 0.99e-6, high=us * 1.01e-6) for size in sizes]
    return Curve(name="all_reduce", ranks=2, share=1.0, method="NCCL", points=points)


def links(copy: float = 396e9, us: float = 28.2) -> Survey:
    return survey(peak("nvlink_copy", copy), peak("all_reduce", 328e9), curves=[messages(us)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """That of an H200's results, with a page that has no tables yet, below the root `tmp_path / 'tree'`."""
    place = tmp_path / "tree" / "docs" / "results" / "h200"
    place.mkdir(parents=True)
    (place / "peaks.md").write_text(PAGE)
    return place


def run(tmp_path: Path, done: Survey, **about: Any) -> Path:
    place = tmp_path / "artifacts" / "run"
    peak_store.save(place / "peaks.json", done)
    (place / "manifest.json").write_text(manifest(**about).model_dump_json())
    return place


def lines(text: str) -> dict[str, list[str]]:
    """The cells of the tables' lines by the peak's name."""
    found = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return {cells[0].strip("`"): cells[1:] for cells in found}


def test_a_survey_is_kept_as_it_was_measured_less_the_gpus_name_and_its_page_shows_it(
    tmp_path: Path, folder: Path
) -> None:
    tf32 = peak("tf32", 415.9e12, "FLOP/s", sustained=359e12, sm_mhz=1500.4, power_w=699.6, throttle=["power cap"])
    sparse = Peak(name="fp4", unit="FLOP/s", reason="needs sm_100, this is sm_90")
    done = survey(tf32, peak("hbm_copy", 4.223e12), peak("graph_node", 0.947e-6, "s"), peak("l2_read", 1e13), sparse)
    main(run(tmp_path, done, git_dirty=False), tmp_path / "tree")
    kept = peak_store.load(folder / "peaks.json")
    assert kept == done.model_copy(update={"uuid": "", "commit": "abc123"})
    assert "GPU-1" not in (folder / "peaks.json").read_text()
    text = (folder / "peaks.md").read_text()
    assert (text.split(BEGIN)[0], text.split(END)[1]) == (PAGE.split(BEGIN)[0], PAGE.split(END)[1])
    assert "NVIDIA H200, 2026-01-02, 5 peaks in 51 s, driver 580, torch 2.11.0, commit abc123." in text
    assert "Not measured: fp4, needs sm_100, this is sm_90." in text
    assert list(lines(text)) == ["tf32", "hbm_copy", "graph_node", "l2_read"]
    assert lines(text)["tf32"] == [
        *("415.9 TFLOP/s", "411.7 TFLOP/s to 420.1 TFLOP/s", "359.0 TFLOP/s", "364.0 TFLOP/s"),
        *("+14.3%, sustained -1.4%", "1500 MHz, 700 W, power cap", "by hand"),
    ]
    assert lines(text)["hbm_copy"][2:5] == ["", "4.250 TB/s", "-0.6%"]
    assert lines(text)["graph_node"][:5] == ["0.9470 us", "0.9375 us to 0.9565 us", "", "0.8800 us", "+7.6%"]
    assert lines(text)["l2_read"][2:5] == ["", "", ""]


def test_settings_that_may_name_a_host_are_not_kept_and_the_others_are_shown(tmp_path: Path, folder: Path) -> None:
    named = {"NCCL_SOCKET_IFNAME": "eth0", "NCCL_COMM_ID": "10.0.0.1:29500", "NCCL_TOPO_FILE": "/home/me/x.xml"}
    numbers = {"NCCL_NVLS_ENABLE": "0", "NCCL_VERSION": "2.28.3-1"}
    curve = messages(28.2).model_copy(update={"settings": named | numbers})
    main(run(tmp_path, survey(peak("all_reduce", 328e9), curves=[curve])), tmp_path / "tree")
    kept = peak_store.load(folder / "peaks.json")
    assert kept is not None
    assert kept.curves[0].settings == numbers
    assert "torch 2.11.0, NCCL_NVLS_ENABLE=0, NCCL_VERSION=2.28.3-1, commit" in (folder / "peaks.md").read_text()


@pytest.mark.parametrize(
    ("about", "earlier", "commit"),
    [
        ({"git_dirty": False}, 0, "abc123"),
        ({"git_dirty": True}, 0, None),
        ({"git_commit": None, "git_dirty": None}, 0, None),
        ({"git_dirty": False}, 60, None),  # the run found them in its artifacts folder
    ],
)
def test_the_commit_is_that_of_the_run_that_measured(
    about: dict[str, Any], earlier: int, commit: str | None, tmp_path: Path, folder: Path
) -> None:
    done = survey(peak("hbm_copy", 4.2e12), measured=MEASURED - timedelta(seconds=earlier))
    place = run(tmp_path, done, **about)
    main(place, tmp_path / "tree")
    kept = peak_store.load(folder / "peaks.json")
    assert kept is not None
    assert kept.commit == commit
    assert (f"commit {commit}" if commit else "commit not recorded") in (folder / "peaks.md").read_text()
    keep(place / "peaks.json", tmp_path / "tree")  # which says nothing of a run
    assert '"commit": null' in (folder / "peaks.json").read_text()


def test_links_are_those_of_the_survey_or_else_of_their_own_file(folder: Path) -> None:
    assert lines(current(PAGE, folder)) == {}
    peak_store.save(folder / "links.json", links())
    assert list(lines(current(PAGE, folder))) == ["nvlink_copy", "all_reduce", "all_reduce of 2 MiB"]
    alone = [Peak(name=name, unit="B/s", reason="needs two GPUs") for name in ("nvlink_copy", "all_reduce")]
    peak_store.save(folder / "peaks.json", survey(peak("hbm_copy", 4.2e12), *alone))
    found = lines(current(PAGE, folder))
    assert list(found) == ["hbm_copy", "nvlink_copy", "all_reduce", "all_reduce of 2 MiB"]
    assert found["nvlink_copy"][0] == "396.0 GB/s"
    assert found["all_reduce of 2 MiB"][:5] == ["28.20 us", "27.92 us to 28.48 us", "", "32.00 us", "-11.9%"]
    peak_store.save(folder / "peaks.json", links(copy=380e9, us=31.0))
    found = lines(current(PAGE, folder))
    assert [found[name][0] for name in found] == ["380.0 GB/s", "328.0 GB/s", "31.00 us"]


def test_what_is_over_5_percent_from_what_is_expected_must_be_named_in_the_pages_own_words(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    far = [peak("tf32", 416e12, "FLOP/s"), peak("launch_eager", 4.9e-6, "s"), peak("fp64", 57.9e12, "FLOP/s")]
    near = [peak("bf16", 820e12, "FLOP/s"), peak("hbm_copy", 4.04e12), peak("hbm_read", 1e12)]
    peak_store.save(folder / "peaks.json", survey(*far, *near))
    assert unexplained(current(PAGE, folder), folder) == ["launch_eager", "fp64"]  # tables explain nothing
    main(None, folder.parents[2])
    page = folder / "peaks.md"
    assert page.read_text() == current(PAGE, folder)
    assert capsys.readouterr().out.splitlines() == [
        str(page),
        f"{page} does not say why `launch_eager` is over 5% from what is expected",
        f"{page} does not say why `fp64` is over 5% from what is expected",
    ]


def test_of_another_gpu_nothing_is_expected(folder: Path) -> None:
    peak_store.save(folder / "peaks.json", survey(peak("tf32", 1e12, "FLOP/s"), device="NVIDIA B200"))
    assert lines(current(PAGE, folder))["tf32"][3:5] == ["", ""]
    assert unexplained(PAGE, folder) == []


def test_foreign_text_stays_in_its_cell(folder: Path) -> None:
    gone = Peak(name="disk_read", unit="B/s", reason=HOSTILE)
    peak_store.save(folder / "peaks.json", survey(peak("tf32", 4e14, "FLOP/s", method=HOSTILE), gone))
    text = current(PAGE, folder)
    assert "<script" not in text
    assert len(lines(text)) == 1


@pytest.mark.parametrize("what", ["nothing", "a CPU", "half a file", "no markers", "no page"])
def test_what_is_no_survey_of_a_gpu_or_has_no_page_changes_nothing(what: str, tmp_path: Path, folder: Path) -> None:
    place = run(tmp_path, survey(peak("hbm_copy", 4.2e12), uuid=CPU if what == "a CPU" else "GPU-1"))
    told = "holds no peaks of a GPU: name a run's folder or a file of peaks"
    if what == "nothing":
        shutil.rmtree(place)
    if what == "half a file":
        (place / "peaks.json").write_text("{")
        told = "is no whole file of peaks"
    if what == "no markers":
        (folder / "peaks.md").write_text("# Peaks\n")
        told = "the text must hold <!-- peaks:begin -->"
    if what == "no page":
        (folder / "peaks.md").unlink()
        told = "No such file"
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises((ValueError, OSError), match=told):
        main(place, tmp_path / "tree")
    assert sorted(tmp_path.rglob("*")) == before


def test_what_is_expected_is_of_peaks_that_are_measured() -> None:
    measured = {name for names in peak_store.RESOURCES.values() for name in names} | set(peak_store.BETWEEN_GPUS)
    measured |= {"pcie_to_device_pageable", peak_results.MESSAGE_NAME}
    assert EXPECTED["NVIDIA H200"].keys() <= measured


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.parent.name)
def test_the_page_is_what_its_survey_makes_of_it_and_explains_what_differs(page: Path) -> None:
    text = page.read_text()
    assert text == current(text, page.parent), "run `python -m tools.documentation.peak_results`"
    assert unexplained(text, page.parent) == []
    kept = peak_store.load(page.parent / "peaks.json")
    assert kept is not None
    assert kept.uuid == ""


def test_an_h200_has_a_page() -> None:
    assert [page.parent.name for page in PAGES] == ["h200"]
