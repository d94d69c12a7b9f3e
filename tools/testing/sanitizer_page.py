"""What compute-sanitizer said of every pair, as a page to be kept: with versions, commit and date."""

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from common.python.base.machine import Machine
from common.python.base.manifest import git_state, utc_now, versions
from common.python.base.toolkit import nvcc_version
from common.python.report.markdown import escaped


@dataclass(frozen=True)
class Verdict:
    """What one tool says of one run, as a phrase and as a line of its own; clean is None where nothing was watched."""

    phrase: str
    clean: bool | None
    line: str


@dataclass
class Told:
    """What a sweep found, by run and tool, and what could not run at all."""

    found: dict[str, dict[str, Verdict]] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    left: int = 0  # pairs that were not examined yet

    def count(self, clean_run: bool) -> int:
        return sum(one.clean is clean_run for by_tool in self.found.values() for one in by_tool.values())


def facts(program: Path, here: Machine, root: Path) -> list[str]:
    """When, of what commit, on what GPU and with which versions."""
    said = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=False).stdout
    number = re.search(r"[Vv]ersion (\S+)", said)
    known = {"compute-sanitizer": number[1] if number else None, **versions(), "nvcc": nvcc_version()}
    commit, dirty = git_state(root)
    return [
        f"{utc_now()}, commit {commit or 'unknown'}" + " with uncommitted changes" * bool(dirty),
        f"{here.gpus[0].name}, driver {here.driver or 'unknown'}",
        ", ".join(f"{name} {version}" for name, version in known.items() if version),
    ]


def page(told: Told, about: Sequence[str], tools: Sequence[str]) -> str:
    """A line a run, with what each tool said of it; and after that what could not run there."""
    rows = [("pair", *tools), ("---",) * (1 + len(tools))]
    for name, by_tool in told.found.items():
        unbuilt = [f"does not build: {by_tool['build'].phrase}"] if "build" in by_tool else []
        cells = unbuilt or [by_tool[tool].phrase for tool in tools]
        rows.append((escaped(name), *map(escaped, cells), *[""] * (len(tools) - len(cells))))
    parts = [
        "# What compute-sanitizer says of the kernels",
        "Made by `scripts/sanitize.sh --page`: one step of every variant that has kernels, at `test` size.",
        "\n".join(f"- {escaped(fact)}" for fact in about),
        f"{told.count(True)} clean, {told.count(False)} with errors." + f" {told.left} pairs to go." * bool(told.left),
        "\n".join(f"| {' | '.join(row)} |" for row in rows),
        "\n".join(["Not run there:", "", *(f"- {escaped(reason)}" for reason in told.skipped)]) if told.skipped else "",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"
