"""Where measured links between GPUs go: a file of figures, a picture and a chapter."""

from pathlib import Path

import pytest
from small_tree import assert_usage, cli
from synthetic_run import ROOT, peak, survey

from common.python.peaks import store as peak_store
from common.python.peaks.store import Curve, Peak, Point, Survey
from common.python.report.markdown import replace_between_markers
from common.python.report.publish import BEGIN, END, link_chart, links_section, publish_links

# Links between GPUs. The curves are made up: what is published of them goes to a folder of the test.

README = f"# Chapter 4\n\n{BEGIN}\n{END}\n\nMore.\n"


def surveyed(*curves: Curve, **changed: object) -> Survey:
    disk = Peak(name="disk_read", unit="B/s", reason="the disk is full")
    return survey(peak("all_reduce", 2e11), disk, versions={"torch": "2"}, curves=list(curves), **changed)


def made_up(name: str = "all_reduce") -> Curve:
    points = [Point(bytes=size, seconds=1e-5 + size / 2e11, low=1e-5, high=1e-2) for size in (2**10, 2**20, 2**30)]
    return Curve(name=name, ranks=2, share=1.0, method="made *up*", points=points)


def test_each_link_has_a_line_in_both_panels_of_a_picture_that_its_data_alone_decides() -> None:
    curves = [made_up(), made_up("nvlink_copy")]
    text = link_chart(curves)
    for words in ("bus bandwidth, GB/s", "time of a message, us", "1 KiB", "1 GiB"):
        assert f">{words}</text>" in text
    assert [text.count(f">{name}</text>") for name in ("all-reduce", "peer copy", "bytes of the message")] == [2, 2, 2]
    assert text == link_chart(curves)


def test_curves_are_kept_drawn_and_shown_in_the_chapter_about_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chapter, given = tmp_path / "ch04" / "README.md", tmp_path / "ab-12.json"
    chapter.parent.mkdir()
    chapter.write_text(README)
    peak_store.save(given, surveyed(made_up(), made_up("nvlink_copy")))
    place = tmp_path / "docs" / "results" / "h200"
    assert publish_links(given, tmp_path) == [place / "links.json", place / "all_reduce.svg", chapter]
    kept = peak_store.load(place / "links.json")
    assert (kept.curves, kept.uuid) == (surveyed(made_up(), made_up("nvlink_copy")).curves, "")
    assert [peak.name for peak in kept.peaks] == ["all_reduce"]
    assert (place / "all_reduce.svg").read_text().startswith("<?xml ")
    text = chapter.read_text()
    assert "](../docs/results/h200/all_reduce.svg)" in text
    assert (chapter.parent / "../docs/results/h200/all_reduce.svg").is_file()
    assert "NVIDIA H200, 2026-01-01, torch 2." in text
    assert "- all-reduce: 10 us at 1 KiB, 200 GB/s at 1 GiB (made \\*up\\*)" in text
    assert "- peer copy: " in text
    assert text.endswith(f"{END}\n\nMore.\n")
    monkeypatch.setattr("common.python.report.publish.link_chart", lambda curves: "drawn")  # which takes a second
    publish_links(given, tmp_path)
    assert chapter.read_text() == text
    peak_store.save(given, surveyed(made_up(), device="NVIDIA B200"))
    publish_links(given, tmp_path)  # another GPU stands beside it
    assert chapter.read_text().count("all_reduce.svg)") == 2


def test_the_command_measures_nothing_and_says_in_one_line_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.python.report.publish.link_chart", lambda curves: "drawn")
    given = tmp_path / "ab-12.json"
    words = ("peak", "--publish", given, "--root", tmp_path)
    assert_usage(cli(*words), "name a file of peaks")
    given.write_text("{}")
    assert_usage(cli(*words), "is damaged or foreign")
    peak_store.save(given, surveyed(made_up()))
    assert_usage(cli(*words), "cannot use")  # no chapter there
    (tmp_path / "ch04").mkdir()
    (tmp_path / "ch04" / "README.md").write_text("# Chapter 4\n")
    assert_usage(cli(*words), f"must hold {BEGIN}")
    assert not (tmp_path / "docs").exists()
    (tmp_path / "ch04" / "README.md").write_text(README)
    done = cli(*words)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 3)
    assert not (tmp_path / "artifacts").exists()


def test_chapter_4_shows_what_is_kept_of_the_links() -> None:
    text = (ROOT / "ch04" / "README.md").read_text()
    assert text == replace_between_markers(text, links_section(ROOT), BEGIN, END)
