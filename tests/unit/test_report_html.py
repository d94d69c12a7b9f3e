"""The page that a run becomes: what it shows, that it is well-formed, and that nothing foreign gets to act in it."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import pytest
from synthetic_run import (
    HOSTILE,
    SOURCES,
    blocks,
    every_kind,
    manifest,
    pair,
    refused,
    write_run,
    write_sources,
)

from common.python.base.manifest import digest, sources_of
from common.python.base.results import PairResult
from common.python.base.text import clean
from common.python.corpus.discovery import find_pairs
from common.python.regress.expectations import expected
from common.python.report.artifacts import read_run
from common.python.report.rows import rows
from common.python.report.templates import page

ELEMENTS = (
    "html head meta title style body main h1 h2 h3 h4 p a b ul li table thead tbody tr th td div span figure "
    "figcaption details summary pre code mark section svg polyline path circle text rect"
)
ATTRIBUTES = (
    "lang charset name content http-equiv class id href tabindex style role aria-label width height viewBox "
    "points cx cy r x y d text-anchor font-size data-label open"
)
CHECKOUT = Path(__file__).resolve().parents[2]
TWO = {"baseline": 400.0, "optimized": 50.0}


def texts(element: ElementTree.Element) -> Iterator[tuple[str, str]]:
    yield element.tag, element.text or ""
    for child in element:
        yield from texts(child)
        yield element.tag, child.tail or ""


class Page:
    """A page taken apart as XML, in which every element closes and has an attribute once: elements and texts."""

    def __init__(self, text: str) -> None:
        tree = ElementTree.fromstring(text)
        self.elements = [(element.tag, element.attrib) for element in tree.iter()]
        self.texts = list(texts(tree))  # innermost element, text

    def shown(self, *leaving_out: str) -> str:
        return " ".join(text for element, text in self.texts if element not in ("style", *leaving_out))

    def values(self, attribute: str) -> list[str]:
        return [found[attribute] for _, found in self.elements if attribute in found]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sources(tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="module")
def folder(root: Path) -> Path:
    return write_run(root / "artifacts" / "run", every_kind(), manifest(root, environment={"CUDA_X": HOSTILE}))


@pytest.fixture(scope="module")
def text(folder: Path, root: Path) -> str:
    return page(read_run(folder), root)


@pytest.fixture(scope="module")
def found(text: str) -> Page:
    return Page(text)


def made(tmp_path: Path, *pairs: PairResult, root: Path | None = None) -> Page:
    folder = write_run(tmp_path / "run", pairs, manifest(root))
    return Page(page(read_run(folder), root or tmp_path))


# What may stand in the page.


def test_every_element_closes_and_is_one_that_cannot_act(found: Page) -> None:
    assert {element for element, _ in found.elements} <= set(ELEMENTS.split())
    assert {name for _, attributes in found.elements for name in attributes} <= set(ATTRIBUTES.split())


def test_foreign_text_is_shown_everywhere_and_is_markup_nowhere(text: str, found: Page) -> None:
    shown = clean(HOSTILE)
    assert found.shown().count("<script>document.title='owned'</script>") >= 10
    assert shown in found.shown()
    assert "<script" not in text
    assert "<img" not in text
    assert "\x00" not in text + found.shown()
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert [element for element, _ in found.elements].count("style") == 1


def test_nothing_is_fetched_and_every_link_leads_into_the_page(text: str, found: Page) -> None:
    ids, links = found.values("id"), found.values("href")
    assert len(ids) == len(set(ids)) == len(links) == 10
    assert set(links) == {f"#{name}" for name in ids}
    assert not re.search(r"url\(|@import|\bsrc=", re.sub(r"&lt;.*?&gt;", "", text))
    policies = [facts["content"] for _, facts in found.elements if facts.get("http-equiv") == "Content-Security-Policy"]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_no_value_is_missing(found: Page) -> None:
    words = re.findall(r"[\w.]+", found.shown("pre", "code", "mark"))  # sources and logs may say it
    assert len(words) > 500
    assert {"nan", "None", "null", "undefined", "inf", "True", "False"} & set(words) == set()


# What it says.


def test_the_headline_has_machine_date_and_counts_and_the_table_the_words_of_the_terminal(
    folder: Path, found: Page
) -> None:
    shown = found.shown()
    assert (
        "NVIDIA H200: 10 pairs, 2 faster, 1 smaller, 1 same, 1 inconclusive, "
        "1 too noisy, 1 invalid, 1 failed, 1 unsupported" in shown
    )
    assert "2026-01-02T03:04:05" in shown
    for result in read_run(folder).summary.pairs:
        for cell in filter(None, rows(result)[0].cells()):
            assert cell in shown
    assert "CPU, NOT ON A GPU" not in shown
    assert "Incomplete" not in shown


def test_a_cpu_is_said_loudly_at_the_top_and_with_each_pair_that_it_measured(tmp_path: Path) -> None:
    pairs = pair(TWO, device="cpu"), refused("built", "x", "no GPU", device="cpu")
    found = made(tmp_path, *pairs)
    assert found.values("class").count("loud") == 2
    assert found.shown().index("MEASURED ON THE CPU") < found.shown().index("Results")


def test_a_run_that_stopped_early_or_empty_says_so(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [], complete=False)
    shown = Page(page(read_run(folder), tmp_path)).shown()
    assert "Incomplete" in shown
    assert "No pair was run." in shown


def test_a_pair_has_its_table_proofs_why_notes_limit_clocks_and_control(tmp_path: Path) -> None:
    us = {"baseline": 400.0, "optimized": 50.0, "optimized__wide": 44.0, "peer__lib": 55.0}
    result = pair(us, notes=["a note"], log="a log")
    shown = made(tmp_path, result).shown()
    for part in (
        rows(result)[0].speedup,
        "4 kernels -> 1, 3.0 GB -> 1.0 GB",
        "3.00e-07",
        "k<int>",
        "a note",
        "a log",
        "limit: 20.0 us by hbm",
        "control, the baseline against itself: ",
        "peer lib: 1.",
        "What wide does.",
        "GPU while sampling, medians over 12 blocks: 1980 MHz SM, 3201 MHz memory, 640 W, 55 C",
    ):
        assert part in shown
    assert "refused because" not in shown  # a column that no line fills


NUMBERS = ("321 us", "123 us", "2.6", "77.7", "k<int>", "3.0 GB")


def test_what_is_invalid_or_too_noisy_shows_its_reason_and_no_number(tmp_path: Path) -> None:
    disturbed, wrong = (result for result in every_kind() if result.name in ("disturbed", "wrong"))
    found = made(tmp_path, disturbed, wrong)
    shown = found.shown()
    assert "the control, baseline against itself, reads" in shown
    assert "it is wrong" in shown
    assert "refused because" in shown
    assert "relative error 5.00e-03 (bench, after timing)" in shown
    assert not [number for number in NUMBERS if number in shown]
    assert "svg" not in {element for element, _ in found.elements}


def test_the_first_screen_has_cards_of_verdicts_medians_and_what_regressed(folder: Path, root: Path) -> None:
    shown = Page(page(read_run(folder), root, {"ch07:copy": "regressed", "ch07:same": "met"})).shown()
    cards = " ".join(shown.partition("Results")[0].split())
    assert "Pairs 10" in cards
    assert "2 faster" in cards
    assert "over 5 headline variants" in cards
    assert "peer time over ours, over 1 pair " in cards
    assert "Regressed 1 of 2 held against expectations: ch07:copy" in cards
    assert "nothing is expected of this device" in Page(page(read_run(folder), root)).shown()


def test_a_chapter_folds_once_in_whatever_order_its_pairs_ran(tmp_path: Path) -> None:
    ran = ("ch07", "a"), ("ch01", "b"), ("ch07", "c")
    found = made(tmp_path, *(pair(TWO, name, chapter=chapter) for chapter, name in ran))
    assert [text for element, text in found.texts if element == "b"] == ["ch01", "ch07"]


def test_kernels_of_baseline_and_headline_stand_beside_each_other(found: Page) -> None:
    heads = [text for element, text in found.texts if element == "th"]
    at = heads.index("baseline: 4 kernels")
    assert heads[at + 1] == "optimized: 1 kernel"


# Sources.


def test_both_sources_stand_side_by_side_with_the_lines_that_differ_marked(tmp_path: Path, root: Path) -> None:
    folder = write_run(tmp_path / "run", [pair(TWO)], manifest(root))
    text = page(read_run(folder), root)
    found = Page(text)
    shown = "".join(text for element, text in found.texts if element in ("pre", "mark", "summary"))
    for file in SOURCES.values():
        for line in file.splitlines():
            assert line in shown
    marked = [text for element, text in found.texts if element == "mark"]
    assert "    return fast" in marked
    assert '"""Row by row."""' in marked
    assert "shared = 1" not in marked
    assert text.count('class="sides"') == 2
    fold = r"<summary>(\d+ lines): docstring, imports, workload</summary>\n<pre[^>]*>(.*?)</pre>"
    folds = re.findall(fold, text, re.DOTALL)
    assert [(count, re.sub(r"</?mark>|\n", "", unescape(code))) for count, code in folds] == [
        ("2 lines", '"""Element by element."""'),
        ("2 lines", '"""Row by row."""'),
    ]


def test_a_further_variant_stands_alone_without_what_the_baseline_has_said(tmp_path: Path, root: Path) -> None:
    head = '"""Wider rows."""\nimport torch\n\nworkload = 1\n'
    body = "".join(f"    # {number}\n" for number in range(9))
    for name, said in (("baseline_copy", "None"), ("optimized_copy__wide", "wide")):
        (root / "ch07" / f"{name}.py").write_text(f"{head}\ndef prepare():\n{body}    return {said}\n")
    text = page(read_run(write_run(tmp_path / "run", [pair({**TWO, "optimized__wide": 44.0})], manifest(root))), root)
    assert "Sources: optimized</summary>" not in text
    _, alone = text.split("Sources: wide</summary>")
    assert '<pre tabindex="0">    # 6\n    # 7\n    # 8\n<mark>    return wide' in alone  # three lines before a mark
    assert not [code for code in ("return None", "baseline_copy.cu", "import torch") if code in alone]


def test_sources_that_changed_or_vanished_are_withheld(tmp_path: Path) -> None:
    root = write_sources(tmp_path / "checkout")
    folder = write_run(tmp_path / "run", [pair(TWO)], manifest(root))
    (root / "ch07" / "baseline_copy.py").write_text("now = 'something else'\n")
    (root / "ch07" / "optimized_copy.cu").unlink()
    text = page(read_run(folder), root)
    assert "this file has changed since the run" in text
    assert "something else" not in text
    assert "this file is no longer here" in text
    assert "return fast" in text


def test_a_file_outside_the_checkout_is_not_read(tmp_path: Path) -> None:
    root, secret = write_sources(tmp_path / "checkout"), tmp_path / "secret.py"
    secret.write_text("password\n")
    about = manifest(root, sources={str(secret): digest(secret)})
    outside = pair(TWO, rows={"optimized": {"file": "../secret.py"}})
    assert "password" not in page(read_run(write_run(tmp_path / "run", [outside], about)), root)


# Charts.


def test_the_suites_charts_stand_on_top_and_each_measured_pair_has_its_samples(text: str, found: Page) -> None:
    labels = found.values("aria-label")
    assert labels[0] == "Gain of each pair over its baseline, with its interval"
    assert labels[-1] == "Roofline: each variant under the peaks of its GPU"
    assert len(labels) == text.count("<svg") == 2 + 2 * 5
    for chart in re.findall(r"<svg .*?</svg>", text, re.DOTALL):
        assert ElementTree.fromstring(chart).tag == "svg"


def test_the_page_of_the_whole_corpus_stays_under_5_mb(tmp_path: Path) -> None:
    """With all sources and the samples of four rounds, and as much again for each pair without a stored result."""
    stored = [one.result for one in expected(CHECKOUT, "NVIDIA H200").values()]
    keys = {result.key for result in stored}
    sources = sources_of([v.path for pair in find_pairs(CHECKOUT) if pair.key in keys for v in pair.variants])
    about = manifest(sources={str(path.relative_to(CHECKOUT)): digest(path) for path in sources})
    times = [{row.name: row.device.median for row in result.variants if row.device} for result in stored]
    timed = [result.model_copy(update={"blocks": blocks(us)}) for result, us in zip(stored, times)]
    one, all_of_them = (
        len(page(read_run(write_run(tmp_path / str(count), timed[:count], about)), CHECKOUT).encode())
        for count in (1, len(timed))
    )
    assert 1e4 < (all_of_them - one) / (len(timed) - 1) < 5e6 / 272
