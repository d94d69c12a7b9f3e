"""A run as JUnit XML, which CI systems read: a test case a pair, failed where `run` would exit with 1."""

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from common.python.base.results import PairResult, Summary
from common.python.base.text import clean, printable
from common.python.report.rows import at_fault, blame, pair_line, rows

SKIPPED = ("unsupported", "built")


def junit_xml(summary: Summary) -> str:
    """The document, declaration included. A pair that is slower or inconclusive has passed: it is proven."""
    about = summary.manifest
    suites = Element("testsuites")
    suite = SubElement(
        suites, "testsuite", name="benchmark_cli", timestamp=about.started, hostname=about.machine.hostname
    )
    known = {f"version.{name}": version for name, version in about.versions.items()}
    gpus = ", ".join(gpu.name for gpu in about.machine.gpus)
    _properties(suite, {"gpu": gpus, "driver": about.machine.driver, "commit": about.git_commit, **known})
    for result in summary.pairs:
        _case(suite, result)
    if not summary.complete:
        SubElement(suite, "system-err").text = "Incomplete: the run stopped before its last pair."
    for element in (suites, suite):
        element.set("tests", str(len(summary.pairs)))
        element.set("failures", str(len(suite.findall("testcase/failure"))))
        element.set("errors", "0")
        element.set("skipped", str(len(suite.findall("testcase/skipped"))))
        element.set("time", f"{summary.seconds:.3f}")
    indent(suites)
    return tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: Element, result: PairResult) -> None:
    seconds = f"{sum(result.seconds.values()):.3f}"
    case = SubElement(suite, "testcase", classname=clean(result.chapter), name=clean(result.name), time=seconds)
    row, own = rows(result)[0], result.headline
    facts = {
        "verdict": row.verdict,
        "speedup": row.speedup,
        "time": row.time,
        "percent_of_limit": row.limit,
        "peer": row.peer,
        "variant": own.name if own else None,
        "device": result.device,
        "size": result.size,
    }
    _properties(case, facts)
    if result.failed:
        kind = "invalid" if at_fault(result).verdict == "invalid" else "failed"
        SubElement(case, "failure", type=kind, message=blame(result)).text = pair_line(result)
        if result.log:
            SubElement(case, "system-out").text = "\n".join(map(printable, result.log.splitlines()))
    elif result.status in SKIPPED:
        SubElement(case, "skipped", message=clean(result.reason or result.status))


def _properties(parent: Element, values: dict[str, str | None]) -> None:
    properties = SubElement(parent, "properties")
    for name, value in values.items():
        if value:
            SubElement(properties, "property", name=name, value=clean(value))
