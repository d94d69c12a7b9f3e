"""The report of `verify`: problems as they are found, and the counts at the end."""

from dataclasses import dataclass

from common.python.base.text import counted
from common.python.verify.static_checks import Check, Problem


@dataclass(frozen=True)
class Report:
    """What `verify` found, and the seconds it took."""

    checks: list[Check]
    pairs: int
    seconds: float
    unchanged: int = 0  # pairs that an earlier sweep proved, and that are as they were

    @property
    def problems(self) -> list[Problem]:
        return [problem for check in self.checks for problem in check.problems]

    @property
    def nothing_checked(self) -> bool:
        return not any(check.passed or check.problems for check in self.checks)


def print_report(report: Report) -> None:
    """Print the counts by kind of check, then what could not be done, by reason."""
    print(f"{'check':<14}{'passed':>8}{'warnings':>10}{'problems':>10}{'not done':>10}")
    for check in report.checks:
        counts = (check.passed, len(check.warnings), len(check.problems), check.not_done.total())
        print("{:<14}{:>8}{:>10}{:>10}{:>10}".format(check.name, *counts))
    for check in report.checks:
        for reason, count in (+check.not_done).most_common():
            print(f"not done: {count} {check.name}: {reason}")
    if report.unchanged:
        print(f"{counted(report.unchanged, 'pair')} unchanged since last proven here: --again proves all once more")
    each = f", {report.seconds / report.pairs:.2f} s a pair" if report.pairs else ""
    print(f"{counted(report.pairs, 'pair')} in {report.seconds:.1f} s{each}")
