"""Checks that only read a tree of pairs: sources, pairing, expectation files, README tables."""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from common.python.base.text import clean
from common.python.corpus.discovery import Pair, Variant, bindings, called
from common.python.regress import expectations
from common.python.report.markdown import replace_between_markers

LITERALS = {"gpus": int, "isolated": bool, "rungs": str}  # of Workload(...): the parent reads them and imports nothing
UPDATE = "`python -m tools.analysis.analyze_expectations --update` writes both, of three runs"


@dataclass(frozen=True)
class Problem:
    """What is wrong, and where; the file is relative to the root."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {clean(self.message)}"


@dataclass
class Check:
    """One kind of check: how often it passed, what it found, and how often it could not be made, by reason."""

    name: str
    passed: int = 0
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    not_done: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Check") -> None:
        self.passed += other.passed
        self.problems += other.problems
        self.warnings += other.warnings
        self.not_done += other.not_done


def check_sources(pairs: Sequence[Pair], whole: dict[str, Pair]) -> tuple[Check, set[Path]]:
    """Check every variant of `pairs`; also the files without a problem, of their whole pairs.

    `whole` are all pairs of the tree, by key: a target may name only some files of a pair.
    """
    check, sound = Check("sources"), set[Path]()
    for pair in pairs:
        asked = {variant.name for variant in pair.variants}
        for variant in whole[pair.key].variants:
            found = list(_source_problems(whole[pair.key], variant))
            if not found:
                sound.add(variant.path)
            if variant.name in asked:
                check.problems += found
                check.passed += not found
    return check, sound


def _source_problems(pair: Pair, variant: Variant) -> Iterator[Problem]:
    file = f"{pair.chapter}/{variant.path.name}"
    if variant.problem:
        number, _, said = variant.problem.removeprefix(f"{file}:").partition(": ")
        yield Problem(file, int(number), said)
    if pair.baseline is None:
        yield Problem(file, 1, f"has no baseline: write baseline_{pair.name}.py")
    if variant.role == "baseline" and not any(other.role == "optimized" for other in pair.variants):
        yield Problem(file, 1, f"has nothing to be compared with: write optimized_{pair.name}.py")
    try:
        tree = ast.parse(variant.path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return  # discovery has reported it
    try:
        compile(tree, file, "exec", dont_inherit=True)
    except SyntaxError as error:  # such as a `return` outside a function, which parses
        yield Problem(file, error.lineno or 1, error.msg)
    for line, message in _contract(pair, variant, tree):
        yield Problem(file, line, message)


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


def check_results(folders: Mapping[str, Path]) -> list[Check]:
    """Whether the expectation files of these folders, by name, can be read, and whether their READMEs show them."""
    files, readmes = Check("expectations"), Check("README tables")
    for chapter, folder in folders.items():
        tables: dict[str, str] = {}
        paths = sorted(folder.glob("expectations_*.json"))
        for path in paths:
            try:
                tables[path.name] = expectations.table(expectations.read(path), mechanisms=True)
                files.passed += 1
            except (OSError, ValueError) as error:
                line = re.search(r" at line (\d+)", str(error))
                message = getattr(error, "strerror", None) or str(error).removeprefix(f"{path} ")
                files.problems.append(Problem(f"{chapter}/{path.name}", int(line[1]) if line else 1, message))
        if tables and expectations.shows(chapter, folder):
            problem = _stale(folder / "README.md", f"{chapter}/README.md", tables)
            readmes.passed += problem is None
            readmes.problems += [problem] if problem else []
        elif paths:
            readmes.not_done["no readable expectations"] += 1
    return [files, readmes]


def _stale(path: Path, readme: str, tables: dict[str, str]) -> Problem | None:
    """The problem of a README whose table is not that of one of the chapter's expectation files, given by name."""
    try:
        text = path.read_text()
        wanted = [replace_between_markers(text, table) for table in tables.values()]
    except (OSError, ValueError) as error:
        return Problem(readme, 1, getattr(error, "strerror", None) or str(error))
    if text in wanted:
        return None
    shown, right = text.splitlines(), wanted[0].splitlines()
    same = next((index for index, pair in enumerate(zip(shown, right)) if pair[0] != pair[1]), len(shown) - 1)
    return Problem(readme, same + 1, f"the table is not what {' or '.join(tables)} says; {UPDATE}")
