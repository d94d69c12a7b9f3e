"""A run as JUnit XML, which CI systems read: a test case a pair, failed where `run` would exit with 1."""

from xml.etree import ElementTree

from common.python.base.results import PairResult, Summary
from common.python.base.text import clean, printable
from common.python.report.rows import pair_line, rows
from common.python.stats.verdict import failed, headline_row

SKIPPED = ("unsupported", "built")


def junit_xml(summary: Summary) -> str:
    """The document, declaration included. A pair that is slower or inconclusive has passed: it is proven."""
    about = summary.manifest
    wrong = [result for result in summary.pairs if failed(result)]
    skipped = [result for result in summary.pairs if result.status in SKIPPED and result not in wrong]
    counts = {"tests": len(summary.pairs), "failures": len(wrong), "errors": 0, "skipped": len(skipped)}
    facts = {name: str(count) for name, count in counts.items()} | {"time": f"{summary.seconds:.3f}"}
    suites = ElementTree.Element("testsuites", facts)
    suite = ElementTree.SubElement(
        suites, "testsuite", {"name": "benchmark_cli", "timestamp": about.started, "hostname": about.machine.hostname}
    )
    suite.attrib.update(facts)
    known = {f"version.{name}": version for name, version in about.versions.items() if version}
    gpus = ", ".join(gpu.name for gpu in about.machine.gpus)
    _properties(suite, {"gpu": gpus, "driver": about.machine.driver, "commit": about.git_commit, **known})
    for result in summary.pairs:
        _case(suite, result, wrong=result in wrong, skipped=result in skipped)
    if not summary.complete:
        ElementTree.SubElement(suite, "system-err").text = "Incomplete: the run stopped before its last pair."
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ElementTree.Element, result: PairResult, wrong: bool, skipped: bool) -> None:
    seconds = f"{sum(result.seconds.values()):.3f}"
    named = {"classname": clean(result.chapter), "name": clean(result.name), "time": seconds}
    case = ElementTree.SubElement(suite, "testcase", named)
    row, own = rows(result)[0], headline_row(result)
    _properties(
        case,
        {
            "verdict": row.verdict,
            "speedup": row.speedup,
            "time": row.time,
            "percent_of_limit": row.limit,
            "peer": row.peer,
            "variant": own.name if own else None,
            "device": result.device,
            "size": result.size,
        },
    )
    if wrong:
        kind, reason = _blame(result)
        failure = ElementTree.SubElement(case, "failure", {"type": kind, "message": reason})
        failure.text = pair_line(result)
        if result.log:
            ElementTree.SubElement(case, "system-out").text = "\n".join(map(printable, result.log.splitlines()))
    elif skipped:
        ElementTree.SubElement(case, "skipped", {"message": clean(result.reason or result.status)})


def _blame(result: PairResult) -> tuple[str, str]:
    """`failed` or `invalid`, and why: the pair's own reason, else that of the first variant which is at fault."""
    at_fault = [row for row in result.variants if row.status == "failed" or row.verdict == "invalid"]
    itself = result.status == "failed" or result.verdict == "invalid"
    judged = result if itself or not at_fault else at_fault[0]
    kind = "invalid" if judged.verdict == "invalid" else "failed"
    reason = judged.reason or next((row.reason for row in at_fault if row.reason), None) or "no reason was recorded"
    return kind, clean(reason if judged is result else f"{at_fault[0].name}: {reason}")


def _properties(parent: ElementTree.Element, values: dict[str, str | None]) -> None:
    known = {name: clean(value) for name, value in values.items() if value}
    if known:
        properties = ElementTree.SubElement(parent, "properties")
        for name, value in known.items():
            ElementTree.SubElement(properties, "property", {"name": name, "value": value})
