"""The rules of the house, each a function from a tree to its breaches: here are none, and a bad tree is caught."""

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from statistics import median

import pytest
from synthetic_run import written

ROOT = Path(__file__).resolve().parents[2]
Rule = Callable[[Path], list[str]]

# From the top down: a package imports itself and those below it, also inside functions and for type checkers.
# Behind each the most lines that it may have.
ORDER = """verify 561 fleet 471 run 1047 doctor 496 estimate 309 build 681 regress 1242 report 1935 peaks 1356
workers 1371 profile 504 timing 521 proof 1067 stats 706 corpus 408 top 797 base 1166"""
PACKAGES = {package: int(lines) for package, lines in re.findall(r"(\w+) (\d+)", ORDER)}
RANK = {package: rank for rank, package in enumerate(reversed(PACKAGES))}
# What pair authors and the documented commands import stands beside the packages.
BESIDE = dict.fromkeys(("workload", "requirements", "cuda", "performance_targets"), "top") | {
    "benchmark_comparison": "report"
}
CORE = {"run", "workers", "proof", "timing", "stats", "corpus", "top", "base"}  # what a run of one pair passes through
# What runs in workers imports torch. All else belongs to the parent process, which imports neither torch nor a pair.
WORKERS = {
    "workload",
    "timing.clock",
    "timing.sampler",
    "timing.memoization_trials",
    "build.triton_targets",
    "verify.cost_audit",
} | {f"workers.{module}" for module in ("commands", "distributed", "preload", "one_step")}
WORKER_PACKAGES = {"proof", "peaks", "profile"}
PARENTS = {"profile.nsight"} | {
    f"peaks.{m}" for m in ("store", "survey", "display")
}  # of these packages, what the parent reads
# Lines of each part. A number may fall at any time; it rises with a sentence in the commit that says why.
LINES = {"core": 7_083, "common/python": 14_638, "tools": 3_149, "tests": 19_952}
MODULE_LINES, FUNCTION_LINES, PAIR_LINES, CUDA_LINES, MEDIAN_PAIR_LINES = 500, 50, 120, 300, 50
MODEL_LINES = 1_519  # of all of common/models together


def library(root: Path) -> dict[str, Path]:
    """The modules of common/python, by dotted name."""
    folder = root / "common/python"
    files = (file for file in sorted(folder.rglob("*.py")) if file.stem != "__init__")
    return {".".join(file.relative_to(folder).with_suffix("").parts): file for file in files}


def package_of(module: str) -> str | None:
    """The package of a module of common/python; None where it has none that is known."""
    first, dot, _ = module.partition(".")
    package = first if dot else BESIDE.get(first)
    return package if package in RANK else None


def models(root: Path) -> list[Path]:
    return [file for file in sorted(root.glob("common/models/*.py")) if file.stem != "__init__"]


def tools(root: Path) -> list[Path]:
    return sorted(root.glob("tools/**/*.py"))


def pair_files(root: Path) -> list[Path]:
    return [file for file in sorted(root.glob("ch[0-9][0-9]/*.py")) if file.stem != "__init__"]


def cuda_files(root: Path) -> list[Path]:
    return sorted(root.glob("ch[0-9][0-9]/*.cu"))


def python_files(root: Path) -> list[Path]:
    return [*library(root).values(), *models(root), *tools(root), *pair_files(root)]


def parse(file: Path) -> ast.Module:
    return parsed(file.read_text(), str(file))


@cache
def parsed(text: str, name: str) -> ast.Module:
    """Once for all rules: the tree has a thousand files."""
    return ast.parse(text, name)


def at(root: Path, file: Path, line: int, message: str) -> str:
    return f"{file.relative_to(root)}:{line}: {message}"


def imported(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything imported; `from a import b` counts as a.b, for b may be a module."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def on_import(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run at import: not the bodies of functions, nor what is for type checkers only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            continue
        yield node
        yield from on_import(node)


def siblings(nodes: Iterable[ast.AST], files: dict[str, Path]) -> Iterator[tuple[int, str]]:
    """Line and dotted name of the modules of common/python among what is imported."""
    for line, name in imported(nodes):
        parts = name.removeprefix("common.python.").split(".") if name.startswith("common.python.") else []
        found = next((m for n in (2, 1) if (m := ".".join(parts[:n])) in files), None)
        if found:
            yield line, found


def imports_go_downwards(root: Path) -> list[str]:
    files, found = library(root), []
    for module, file in files.items():
        package = package_of(module)
        if package is None:
            found.append(at(root, file, 1, f"{module} is in no known package: name it in ORDER or BESIDE"))
            continue
        for line, other in siblings(ast.walk(parse(file)), files):
            above = package_of(other)
            if above and RANK[above] > RANK[package]:
                found.append(at(root, file, line, f"{package} imports {other}, which stands above it"))
    return found


def imports_have_no_circle(root: Path) -> list[str]:
    """Between modules; those inside functions count as well."""
    files = library(root)
    uses = {m: sorted({o for _, o in siblings(ast.walk(parse(file)), files)} - {m}) for m, file in files.items()}
    try:
        TopologicalSorter(uses).prepare()
    except CycleError as error:
        return [f"a circle: {' -> '.join(reversed(error.args[1]))}"]
    return []


def is_worker(module: str) -> bool:
    return module in WORKERS or (module.split(".")[0] in WORKER_PACKAGES and module not in PARENTS)


def parent_imports_no_torch(root: Path) -> list[str]:
    """Neither the modules of the parent process nor anything that they import in turn."""
    files, found = library(root), []
    parents = (file for module, file in files.items() if not is_worker(module))
    pending, seen = [*root.glob("tools/cli/*.py"), *parents], set[Path]()
    while pending:
        if (file := pending.pop()) in seen:
            continue
        seen.add(file)
        nodes = list(on_import(parse(file)))
        pending += [files[other] for _, other in siblings(nodes, files)]
        heavy = [(line, name) for line, name in imported(nodes) if re.match(r"(torch|triton|ch\d\d)(\.|$)", name)]
        found += [at(root, file, line, f"the parent process would import {name}") for line, name in heavy]
    return found


def chapters_import_the_library_and_their_baseline(root: Path) -> list[str]:
    ours = re.compile(r"common|tools|tests|scripts|ch\d\d")
    allowed = "common.python, common.models and its own baseline"
    found = []
    for file in pair_files(root):
        own = (f"{file.parent.name}.{baseline_of(file).stem}.", "common.python.", "common.models.")
        for line, name in imported(ast.walk(parse(file))):
            if name.startswith(".") or (ours.fullmatch(name.split(".")[0]) and not f"{name}.".startswith(own)):
                found.append(at(root, file, line, f"imports {name}: {allowed} are all it may"))
    headers = {header.name for header in root.glob("common/cuda/*.cuh")}
    for file in cuda_files(root):
        for line, text in enumerate(file.read_text().splitlines(), 1):
            if (match := re.match(r'\s*#include\s+"(.+)"', text)) and match[1] not in headers:
                found.append(at(root, file, line, f"includes {match[1]}: headers in quotes are those of common/cuda"))
    return found


def models_stand_on_the_contract(root: Path) -> list[str]:
    """What chapters share beside the library knows the contract and itself; the library and the tools know it not."""
    found = []
    for file in [*library(root).values(), *models(root), *tools(root)]:
        for line, name in imported(ast.walk(parse(file))):
            model = f"{name}.".startswith("common.models.")
            if file.parent.name != "models":
                found += [at(root, file, line, f"imports {name}: common.models is for chapters")] * model
            elif re.match(r"\.|(common|tools|tests|scripts|ch\d\d)(\.|$)", name) and not (
                model or name.startswith("common.python.workload.")
            ):
                found.append(at(root, file, line, f"imports {name}: common.python.workload is all it may"))
    return found


def baseline_of(file: Path) -> Path:
    pair = re.sub(r"^(baseline|optimized|peer)_", "", file.stem).split("__")[0]
    return file.with_name(f"baseline_{pair}.py")


def files_keep_to_their_budget(root: Path) -> list[str]:
    budgets = dict.fromkeys([*library(root).values(), *models(root), *tools(root)], MODULE_LINES)
    budgets |= dict.fromkeys(pair_files(root), PAIR_LINES) | dict.fromkeys(cuda_files(root), CUDA_LINES)
    counts = {file: len(file.read_text().splitlines()) for file in budgets}
    found = [at(root, f, n, f"{n} lines, {budgets[f]} allowed") for f, n in counts.items() if n > budgets[f]]
    if (together := sum(counts[file] for file in models(root))) > MODEL_LINES:
        found.append(f"common/models: {together} lines together, {MODEL_LINES} allowed")
    for file in python_files(root):
        for node in ast.walk(parse(file)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > FUNCTION_LINES:
                    found.append(
                        at(root, file, node.lineno, f"{node.name} has {length} lines, {FUNCTION_LINES} allowed")
                    )
    return found


def parts_keep_to_their_lines(root: Path) -> list[str]:
    """The ratchet: the harness, its packages, its core, the tools and the tests have no more lines than they had."""
    modules = library(root)
    parts = {
        "core": [file for module, file in modules.items() if package_of(module) in CORE],
        "common/python": list(modules.values()),
        "tools": tools(root),
        "tests": sorted(root.glob("tests/**/*.py")),
    }
    parts |= {one: [file for module, file in modules.items() if package_of(module) == one] for one in PACKAGES}
    counts = {part: sum(len(file.read_text().splitlines()) for file in files) for part, files in parts.items()}
    allowed = LINES | PACKAGES
    return [f"{part} has {n} lines, {allowed[part]} allowed" for part, n in counts.items() if n > allowed[part]]


def modules_are_no_splinters(root: Path) -> list[str]:
    """One under 40 lines has two importers or more, or it belongs into the one that it has."""
    files = library(root)
    uses = [{other for _, other in siblings(ast.walk(parse(file)), files)} for file in python_files(root)]
    short = (module for module, file in files.items() if len(file.read_text().splitlines()) < 40)
    lone = (module for module in short if sum(module in used for used in uses) < 2)
    return [f"{module} has under 40 lines and fewer than two importers" for module in lone]


def median_pair_file_is_short(root: Path) -> list[str]:
    counts = [len(file.read_text().splitlines()) for file in pair_files(root)]
    if counts and (middle := median(counts)) >= MEDIAN_PAIR_LINES:
        return [f"the median pair file has {middle:g} lines, fewer than {MEDIAN_PAIR_LINES} allowed"]
    return []


def pair_files_open_with_their_mechanism(root: Path) -> list[str]:
    found = []
    for file in pair_files(root):
        text = file.read_text()
        tree = parse(file)
        docstring = ast.get_docstring(tree, clean=False) or ""
        if not docstring or tree.body[0].lineno != 1 or not docstring.split("\n")[0]:
            found.append(at(root, file, 1, "line 1 must be a docstring that says the mechanism"))
            continue
        first = docstring.split("\n")[0]
        if not first.endswith("."):
            found.append(at(root, file, 1, "the docstring's first line must be one sentence, ending with a period"))
        if len(text.split("\n")[0]) > 120:
            found.append(at(root, file, 1, "the docstring's first line has over 120 characters"))
        if (
            len(first.split()) < 5
            or file.stem in first
            or baseline_of(file).stem.removeprefix("baseline_") in words(first)
        ):
            found.append(at(root, file, 1, f"{first!r} names the file: say what happens"))
    for file in cuda_files(root):
        if not re.match(r"// \S.*", file.read_text()):
            found.append(at(root, file, 1, "line 1 must be a comment that says the mechanism"))
    return found


def words(sentence: str) -> list[str]:
    """Identifiers with an underscore in them: a plain word like `transpose` may well stand in the sentence."""
    return [word for word in re.findall(r"\w+", sentence) if "_" in word]


FORBIDDEN = {
    r"sys\.path": "sys.path: imports work from the root",
    r"(\w+\.)*(manual_seed|manual_seed_all)": "seeds come from draw",
    r"(time|timeit)(\.\w+)?|(\w+\.)*(perf_counter|perf_counter_ns|elapsed_time)": "timing belongs to the harness",
    r"torch\.device|(\w+\.)*set_device": "devices come from the inputs",
    r"main|teardown|__name__": "a pair has no main and no teardown",
    r"hbm_bytes": "Cost(read=..., write=...) says which bytes are read and which are written",
}


def pair_files_stay_within_the_protocol(root: Path) -> list[str]:
    found = []
    for file in pair_files(root):
        for node in ast.walk(parse(file)):
            line = getattr(node, "lineno", 1)
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if re.fullmatch(r"cuda(:\d+)?|(cpu|mps|xpu):\d+", node.value):
                    found.append(at(root, file, line, f"{node.value!r}: devices come from the inputs"))
            elif name := spelled(node):
                reasons = (reason for pattern, reason in FORBIDDEN.items() if re.fullmatch(pattern, name))
                found += [at(root, file, line, f"{name}: {reason}") for reason in reasons]
    return found


def spelled(node: ast.AST) -> str:
    """The name that a node reads, imports or defines, as it is spelled; empty for other nodes."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.keyword):
        return node.arg or ""
    if isinstance(node, ast.alias):
        return node.name
    if isinstance(node, ast.ImportFrom):
        return node.module or ""
    if isinstance(node, ast.Attribute | ast.Name):
        return ast.unparse(node)
    return ""


def every_variant_has_its_baseline(root: Path) -> list[str]:
    found = []
    for file in pair_files(root):
        if not re.match(r"(baseline|optimized|peer)_\w", file.stem):
            found.append(
                at(root, file, 1, "a chapter's files are baseline_x, optimized_x, optimized_x__idea, peer_x__lib")
            )
        elif file.stem.startswith("peer_") and "__" not in file.stem:
            found.append(at(root, file, 1, f"a peer names its library: {file.stem}__lib.py"))
        elif not baseline_of(file).is_file():
            found.append(at(root, file, 1, f"has no baseline: write {baseline_of(file).name}"))
    for file in cuda_files(root):
        if not file.with_suffix(".py").is_file():
            found.append(at(root, file, 1, f"nothing loads it: {file.stem}.py is missing"))
    return found


def imports_are_not_tried(root: Path) -> list[str]:
    found = []
    for file in python_files(root):
        for node in ast.walk(parse(file)):
            if isinstance(node, ast.Try) and any(isinstance(line, ast.Import | ast.ImportFrom) for line in node.body):
                found.append(
                    at(root, file, node.lineno, "a try around an import: declare requires = needs(modules=...)")
                )
    return found


def nothing_is_left_lying(root: Path) -> list[str]:
    """No reminders, and no comment line that is a statement of code; of Python files ruff says so (ERA, FIX)."""
    found = []
    for file in cuda_files(root):
        for line, text in enumerate(file.read_text().splitlines(), 1):
            if re.search(r"\b(TODO|FIXME|XXX|HACK)\b", text) or re.match(r"\s*//.*[;{}]\s*$", text):
                found.append(at(root, file, line, f"left lying: {text.strip()}"))
    return found


SENTENCE = '"""Each thread copies one element, and neighbours stand apart."""\n'
BASELINE, OPTIMIZED = "ch07/baseline_x.py", "ch07/optimized_x.py"
CUDA, CLOCK = "common/python/cuda.py", "common/python/timing/clock.py"
RESULTS, SESSION = "common/python/base/results.py", "common/python/run/session.py"
BREACHES: list[tuple[Rule, dict[str, str], str]] = [
    (imports_go_downwards, {RESULTS: "from common.python.run.session import run", SESSION: ""}, "results.py:1"),
    (imports_go_downwards, {CUDA: "def f():\n    from common.python.run import session", SESSION: ""}, "cuda.py:2"),
    (imports_go_downwards, {"common/python/helper.py": ""}, "helper is in no known package"),
    (
        imports_have_no_circle,
        {CUDA: "import common.python.timing.clock", CLOCK: "def f():\n    import common.python.cuda"},
        "-> cuda",
    ),
    (parts_keep_to_their_lines, {"common/python/fleet/a.py": "x = 1\n" * 500}, "fleet has 500 lines"),
    (modules_are_no_splinters, {CLOCK: "import common.python.cuda", CUDA: "x = 1"}, "cuda has under 40 lines"),
    (parts_keep_to_their_lines, {f"tools/{n}.py": "x = 1\n" * 400 for n in range(17)}, "tools has 6800 lines"),
    (parent_imports_no_torch, {"tools/cli/new.py": "if 1:\n    from triton import jit"}, "new.py:2"),
    (parent_imports_no_torch, {"common/python/run/suite.py": "import ch07.baseline_x"}, "suite.py:1"),
    (parent_imports_no_torch, {SESSION: "import common.python.timing.clock", CLOCK: "import torch.nn"}, "clock.py:1"),
    (chapters_import_the_library_and_their_baseline, {BASELINE: "from ch08.baseline_x import f"}, "ch08.baseline_x"),
    (chapters_import_the_library_and_their_baseline, {OPTIMIZED: "from ch07.baseline_y import f"}, "ch07.baseline_y"),
    (chapters_import_the_library_and_their_baseline, {OPTIMIZED: "def f():\n    import tools.cli"}, "x.py:2"),
    (chapters_import_the_library_and_their_baseline, {OPTIMIZED: "from .baseline_x import f"}, ".baseline_x"),
    (chapters_import_the_library_and_their_baseline, {"ch07/baseline_x.cu": '#include "mine.h"'}, "mine.h"),
    (models_stand_on_the_contract, {"common/models/decoder.py": "from common.python.cuda import f"}, "decoder.py:1"),
    (models_stand_on_the_contract, {"common/models/decoder.py": "from ch15.baseline_x import f"}, "decoder.py:1"),
    (models_stand_on_the_contract, {"common/python/cuda.py": "def f():\n    import common.models.a"}, "cuda.py:2"),
    (files_keep_to_their_budget, {"common/python/cuda.py": "x = 1\n" * 501}, "501 lines, 500 allowed"),
    (files_keep_to_their_budget, {"common/models/a.py": "x = 1\n" * 501}, "501 lines, 500 allowed"),
    (files_keep_to_their_budget, {"tools/cli/benchmark_cli.py": "x = 1\n" * 501}, "501 lines, 500 allowed"),
    (files_keep_to_their_budget, {f"common/models/{m}.py": "x = 1\n" * 300 for m in "abcdef"}, "1800 lines together"),
    (files_keep_to_their_budget, {BASELINE: "x = 1\n" * 121}, "121 lines, 120 allowed"),
    (files_keep_to_their_budget, {"ch07/baseline_x.cu": "int x;\n" * 301}, "301 lines, 300 allowed"),
    (files_keep_to_their_budget, {"common/python/cuda.py": "def f():\n" + "    x = 1\n" * 50}, "f has 51 lines"),
    (median_pair_file_is_short, {BASELINE: "x = 1\n" * 50}, "50 lines"),
    (pair_files_open_with_their_mechanism, {BASELINE: "\n" + SENTENCE}, "line 1 must be a docstring"),
    (pair_files_open_with_their_mechanism, {BASELINE: SENTENCE.replace("apart.", "apart")}, "a period"),
    (pair_files_open_with_their_mechanism, {BASELINE: SENTENCE.replace("copies", "copies and " * 9)}, "120 characters"),
    (pair_files_open_with_their_mechanism, {BASELINE: '"""Baseline of the transpose."""'}, "say what happens"),
    (pair_files_open_with_their_mechanism, {BASELINE: '"""What baseline_x does at first."""'}, "say what happens"),
    (pair_files_open_with_their_mechanism, {"ch07/baseline_x.cu": "#pragma once"}, "line 1 must be a comment"),
    (pair_files_stay_within_the_protocol, {BASELINE: "import sys\nsys.path.append(0)"}, "x.py:2: sys.path"),
    (pair_files_stay_within_the_protocol, {BASELINE: "torch.manual_seed(0)"}, "seeds come from draw"),
    (pair_files_stay_within_the_protocol, {BASELINE: "import time"}, "timing"),
    (pair_files_stay_within_the_protocol, {BASELINE: "x.to('cuda:0')"}, "devices come from the inputs"),
    (pair_files_stay_within_the_protocol, {BASELINE: "torch.device(name)"}, "devices come from the inputs"),
    (pair_files_stay_within_the_protocol, {BASELINE: "def main(): ..."}, "no main"),
    (pair_files_stay_within_the_protocol, {BASELINE: "Cost(hbm_bytes=3)"}, "Cost(read=..., write=...)"),
    (every_variant_has_its_baseline, {OPTIMIZED: SENTENCE}, "write baseline_x.py"),
    (every_variant_has_its_baseline, {BASELINE: SENTENCE, "ch07/peer_x.py": SENTENCE}, "a peer names its library"),
    (every_variant_has_its_baseline, {"ch07/transpose.py": SENTENCE}, "a chapter's files are"),
    (every_variant_has_its_baseline, {"ch07/baseline_x.cu": "// It copies."}, "baseline_x.py is missing"),
    (imports_are_not_tried, {BASELINE: "try:\n    import x\nexcept ImportError: pass"}, "needs(modules=...)"),
    (nothing_is_left_lying, {"ch07/baseline_x.cu": "// It copies. TODO: say how"}, "baseline_x.cu:1"),
    (nothing_is_left_lying, {"ch07/baseline_x.cu": "// It copies.\n// out[i] = in[i];"}, "baseline_x.cu:2"),
]
RULES = list(dict.fromkeys(rule for rule, _, _ in BREACHES))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_this_tree_keeps_the_rule(rule: Rule) -> None:
    assert rule(ROOT) == []


@pytest.mark.parametrize(("rule", "files", "message"), BREACHES, ids=lambda x: getattr(x, "__name__", ""))
def test_a_breach_is_caught(rule: Rule, files: dict[str, str], message: str, tmp_path: Path) -> None:
    found = rule(written(tmp_path, files))
    assert any(message in breach for breach in found), found
