"""A run as CI systems read it: who passed, failed and was skipped, and XML that holds whatever reasons hold."""

from xml.etree import ElementTree

from synthetic_run import HOSTILE, HOSTILE_NAME, every_kind, pair, refused, summary

from common.python.base.results import PairResult
from common.python.base.text import clean
from common.python.report.templates import junit_xml

TWO = {"baseline": 400.0, "optimized": 50.0}


def suite(*pairs: PairResult, **facts: bool) -> ElementTree.Element:
    found = ElementTree.fromstring(junit_xml(summary(pairs, **facts)).encode()).find("testsuite")
    assert found is not None
    return found


def case(result: PairResult) -> ElementTree.Element:
    (found,) = suite(result).iter("testcase")
    return found


def test_every_pair_is_a_case_and_the_suite_counts_them_and_says_if_it_stopped_early() -> None:
    found = suite(*every_kind())
    cases = {one.attrib["name"]: one for one in found.iter("testcase")}
    assert len(cases) == 10
    failed = {name for name, one in cases.items() if one.find("failure") is not None}
    skipped = {name for name, one in cases.items() if one.find("skipped") is not None}
    assert (failed, skipped) == ({"wrong", "crash"}, {"cluster", "compiled"})
    assert cases["cluster"].find("skipped").attrib == {"message": "needs sm_100, found sm_90"}
    counts = {"tests": "10", "failures": "2", "errors": "0", "skipped": "2", "time": "60.000"}
    assert counts.items() <= found.attrib.items()
    assert found.attrib["hostname"] == "box"
    assert found.find("system-err") is None
    assert "Incomplete" in (suite(complete=False).findtext("system-err") or "")


def test_a_case_has_its_chapter_name_time_and_properties() -> None:
    found = case(pair({**TWO, "peer__lib": 55.0}))
    assert (found.attrib["classname"], found.attrib["name"], found.attrib["time"]) == ("ch07", "copy", "1.750")
    properties = {one.attrib["name"]: one.attrib["value"] for one in found.iter("property")}
    assert properties["verdict"] == "faster"
    assert properties["speedup"].startswith("8.0")
    assert properties["peer"].endswith(" lib")
    assert properties["variant"] == "optimized_copy"
    assert list(found)[1:] == []


def test_a_failure_says_what_kind_why_and_what_was_logged() -> None:
    found = case(refused("failed", "crash", "segfault\nin line 2", log="one\ntwo"))
    failure = found.find("failure")
    assert failure.attrib == {"type": "failed", "message": "segfault in line 2"}
    assert (found.findtext("system-out"), failure.text) == ("one\ntwo", "ch08:crash  failed  segfault in line 2")


def test_a_pair_fails_with_any_of_its_variants_as_the_run_does() -> None:
    lost = {"status": "failed", "reason": "out of memory"}
    failure = case(pair({**TWO, "peer__lib": 55.0}, rows={"peer__lib": lost})).find("failure")
    assert failure.attrib == {"type": "failed", "message": "peer_copy__lib: out of memory"}


def test_hostile_text_stays_text() -> None:
    found = case(refused("failed", HOSTILE_NAME, HOSTILE, log=HOSTILE))
    failure = found.find("failure")
    assert found.attrib["name"] == clean(HOSTILE)
    assert failure.attrib["message"] == clean(HOSTILE)
    assert {one.tag for one in found.iter()} == {"testcase", "properties", "property", "failure", "system-out"}
