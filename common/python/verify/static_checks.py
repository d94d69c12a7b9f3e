"""Checks that only read a tree of pairs: sources, pairing, expectation files, README tables."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from common.python.base.text import clean
from common.python.corpus.discovery import Pair, Variant, bindings, called
from common.python.regress import expectations
from common.python.report.markdown import replace_between_markers

LITERALS = {"gpus": int, "isolated": bool, "rungs": str}  # of Workload(...): the parent reads them and imports nothing
UPDATE = "`python -m tools.analysis.analyze_expectations --update` writes both, of three runs"


class Finding(NamedTuple):
    """What a check of one thing came to: what is wrong and where, or why it was not done. Files are under the root."""

    check: str
    outcome: Literal["passed", "warning", "problem", "not done", "unchanged"]
    message: str = ""
    file: str = ""
    line: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {clean(self.message)}"


def check_sources(pairs: Sequence[Pair], whole: dict[str, Pair]) -> tuple[list[Finding], set[Path]]:
    """Check every variant of `pairs`; also the files without a problem, of their whole pairs.

    `whole` are all pairs of the tree, by key: a target may name only some files of a pair.
    """
    faults = {v.path: list(_faults(whole[pair.key], v)) for pair in pairs for v in whole[pair.key].variants}
    asked = [faults[variant.path] or [Finding("sources", "passed")] for pair in pairs for variant in pair.variants]
    return [one for found in asked for one in found], {path for path, found in faults.items() if not found}


def _faults(pair: Pair, variant: Variant) -> Iterator[Finding]:
    file = f"{pair.chapter}/{variant.path.name}"
    problem = partial(Finding, "sources", "problem", file=file)
    if variant.problem:
        number, _, said = variant.problem.removeprefix(f"{file}:").partition(": ")
        yield problem(said, line=int(number))
    if pair.baseline is None:
        yield problem(f"has no baseline: write baseline_{pair.name}.py")
    if variant.role == "baseline" and not any(other.role == "optimized" for other in pair.variants):
        yield problem(f"has nothing to be compared with: write optimized_{pair.name}.py")
    try:
        tree = ast.parse(variant.path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return  # discovery has reported it
    try:
        compile(tree, file, "exec", dont_inherit=True)
    except SyntaxError as error:  # such as a `return` outside a function, which parses
        yield problem(error.msg, line=error.lineno or 1)
    for line, message in _contract(pair, variant, tree):
        yield problem(message, line=line)


def _contract(pair: Pair, variant: Variant, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Breaches of the protocol of variants and workloads that the text shows: line and message."""
    stated = bindings(tree, "workload")
    line = stated[-1].lineno if stated else 1
    if variant.role == "baseline":
        call = called(stated[0]) if len(stated) == 1 else None
        if call is None or ast.unparse(call.func).split(".")[-1] != "Workload":
            yield line, "must state the problem as `workload = Workload(...)`, once"
        for keyword in call.keywords if call else ():
            wanted = LITERALS.get(keyword.arg or "")
            if wanted and not (isinstance(keyword.value, ast.Constant) and type(keyword.value.value) is wanted):
                yield keyword.value.lineno, f"{keyword.arg}= must be a literal {wanted.__name__}"
        there = {one.label for one in pair.variants if one.role == "optimized"} - {"optimized"}
        if (order := str(variant.literals.get("rungs", ""))) and sorted(order.split()) != sorted(there):
            yield line, f"rungs= must name each rung once: {', '.join(sorted(there)) or 'there is none'}"
    elif len(stated) != 1 or not _shares(stated[0], pair.baseline_module):
        shared = f"from {pair.baseline_module} import workload as workload"
        yield line, f"must share its baseline's workload, and nothing else of that name: `{shared}`"
    if not bindings(tree, "prepare"):
        yield 1, "has no `prepare`: a function of the inputs that returns a step"


def _shares(statement: ast.stmt, baseline: str) -> bool:
    names = statement.names if isinstance(statement, ast.ImportFrom) and statement.module == baseline else []
    return any(alias.name == "workload" and alias.asname in (None, "workload") for alias in names)


def line_of(path: Path, name: str, argument: str | None = None) -> int:
    """The line at which a module binds `name`, or that of an `argument` of the call it is bound to; else 1."""
    found = bindings(ast.parse(path.read_bytes()), name)
    call = called(found[-1]) if found and argument else None
    arguments = [keyword.value.lineno for keyword in call.keywords if keyword.arg == argument] if call else []
    return next(iter([*arguments, *(statement.lineno for statement in found)]), 1)


def check_results(folders: Mapping[str, Path]) -> Iterator[Finding]:
    """Whether the expectation files of these folders, by name, can be read, and whether their READMEs show them."""
    for chapter, folder in folders.items():
        tables: dict[str, str] = {}
        paths = sorted(folder.glob("expectations_*.json"))
        for path in paths:
            try:
                tables[path.name] = expectations.table(expectations.read(path), folder)
                yield Finding("expectations", "passed")
            except (OSError, ValueError) as error:
                line = re.search(r" at line (\d+)", str(error))
                message = getattr(error, "strerror", None) or str(error).removeprefix(f"{path} ")
                where = f"{chapter}/{path.name}", int(line[1]) if line else 1
                yield Finding("expectations", "problem", message, *where)
        if tables and expectations.shows(chapter, folder):
            yield _check_readme(folder / "README.md", f"{chapter}/README.md", tables)
        elif paths:
            yield Finding("README tables", "not done", "no readable expectations")


def _check_readme(path: Path, readme: str, tables: dict[str, str]) -> Finding:
    """Whether a README's table is that of one of the chapter's expectation files, given by name."""
    try:
        text = path.read_text()
        wanted = [replace_between_markers(text, table) for table in tables.values()]
    except (OSError, ValueError) as error:
        return Finding("README tables", "problem", getattr(error, "strerror", None) or str(error), readme)
    if text in wanted:
        return Finding("README tables", "passed")
    shown, right = text.splitlines(), wanted[0].splitlines()
    same = next((index for index, (a, b) in enumerate(zip(shown, right)) if a != b), len(shown) - 1)
    message = f"the table is not what {' or '.join(tables)} says; {UPDATE}"
    return Finding("README tables", "problem", message, readme, same + 1)
