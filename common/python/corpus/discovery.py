"""Pairs are found by their file names and read as text: the parent never imports one."""

import ast
import difflib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.python.corpus.targets import (
    CHAPTERS,
    FORMS,
    MOST_TOLD,
    Folder,
    Target,
    TargetError,
    nearest,
    pair_name,
    parse,
    quoted,
)
from common.python.requirements import Requirements, needs

if TYPE_CHECKING:  # results load pydantic, which `list` has no time for
    from common.python.base.results import Kind, Role

ROLES = ("baseline_", "optimized_", "peer_")
MOST_QUOTED = 400  # characters of what is wrong with a file, which may quote it
IMPORTS: "dict[Kind, re.Pattern[bytes]]" = {  # the line that makes a file one of this kind
    "CUDA": re.compile(rb"^\s*(import|from)\b(.*|[^()\n]*\([^)]*)\bload_cuda\b", re.MULTILINE),
    "Triton": re.compile(rb"^\s*(from triton\b|import\b.*\btriton\b)", re.MULTILINE),
}
AUTOTUNES = re.compile(rb"autotune(?!_pointwise)")


@dataclass(frozen=True)
class Variant:
    """One file, as far as reading it tells."""

    name: str  # file stem
    role: "Role"
    label: str  # baseline, optimized, or the rung's or peer's own name
    path: Path
    root: Path  # where Python finds its module: of a ref, in another tree than its pair's
    module: str  # what it is imported as
    sentence: str
    kinds: "tuple[Kind, ...]"
    required: Requirements
    problem: str | None = None  # why it cannot be used: file, line and what is wrong
    literals: dict[str, Any] = field(default_factory=dict)  # of a baseline: literal arguments of its Workload(...)
    python: str | None = None  # the interpreter in which it runs, if that is not the harness's

    @property
    def compiles(self) -> bool:
        """Whether torch.compile or Triton compiles it when it is prepared."""
        return "Triton" in self.kinds or self.uses_torch_compile

    @property
    def uses_torch_compile(self) -> bool:
        return b"torch.compile" in self._source()

    @property
    def autotunes(self) -> bool:
        """Whether compiling it times kernels against each other, for which nothing else may be at work."""
        return bool(AUTOTUNES.search(self._source()))

    def _source(self) -> bytes:
        return b"" if self.problem else self.path.read_bytes()


@dataclass
class Pair:
    """A baseline with its optimized rungs and peers."""

    folder: Folder
    name: str
    variants: list[Variant] = field(default_factory=list)
    literals: dict[str, Any] = field(default_factory=dict)  # of its baseline: isolated, gpus, goal, rungs
    notes: list[str] = field(default_factory=list)  # that its results begin with

    @property
    def chapter(self) -> str:
        return self.folder.name

    @property
    def key(self) -> str:
        return f"{self.chapter}:{self.name}"

    @property
    def baseline(self) -> Variant | None:
        return next((variant for variant in self.variants if variant.role == "baseline"), None)

    @property
    def baseline_module(self) -> str:
        """What its baseline is imported as, be it there or not."""
        return self.folder.module(f"baseline_{self.name}")

    @property
    def isolated(self) -> bool:
        return bool(self.literals.get("isolated", False))

    @property
    def gpus(self) -> int:
        """The fewest that it needs; with more than one it runs on ranks."""
        return int(self.literals.get("gpus", 1))

    @property
    def apart(self) -> bool:
        """Whether its variants cannot share a process."""
        return self.isolated or any(variant.role == "ref" for variant in self.variants)

    def variant(self, name: str) -> Variant:
        """The variant of this name; for the control, and any other name, the first one, which is the baseline."""
        return next((variant for variant in self.variants if variant.name == name), self.variants[0])

    def only(self, names: set[str]) -> "Pair":
        """The same pair with the named variants alone."""
        return Pair(self.folder, self.name, [v for v in self.variants if v.name in names], self.literals, self.notes)


def find_pairs(root: Path) -> list[Pair]:
    """Every pair of the chapters under `root`, by chapter and name."""
    return [pair for chapter in CHAPTERS for pair in pairs_in(Folder(root / chapter, chapter))]


def pairs_in(folder: Folder) -> list[Pair]:
    """The pairs of a folder by name; variants with the baseline first, then rungs, then peers."""
    pairs: dict[str, Pair] = {}
    for path in sorted(folder.path.glob("*_*.py")):  # which has baselines first, then optimized, then peers
        if path.name.startswith(ROLES):
            name = pair_name(path.stem)
            pair = pairs.setdefault(name, Pair(folder, name))
            pair.variants.append(read_variant(path, folder))
            if pair.variants[-1].role == "baseline":
                pair.literals = pair.variants[-1].literals
    for pair in pairs.values():
        if order := str(pair.literals.get("rungs", "")).split():
            pair.variants.sort(key=lambda variant: order.index(variant.label) if variant.label in order else -1)
            pair.variants.sort(key=lambda variant: variant.role == "peer")
    return [pairs[name] for name in sorted(pairs)]


def read_variant(path: Path, folder: Folder) -> Variant:
    """Role, sentence, kinds and needs of a file, without importing it; what is wrong with it goes into `problem`."""
    role: Role = "baseline" if path.stem.startswith("b") else "optimized" if path.stem.startswith("o") else "peer"
    label = path.stem.split("__", 1)[1] if "__" in path.stem else role
    read: dict[str, Any] = {"sentence": "", "kinds": (), "required": Requirements()}
    try:
        source = path.read_bytes()
        read["kinds"] = tuple(kind for kind, line in IMPORTS.items() if line.search(source)) or ("PyTorch",)
        read |= _read(source)
        if "CUDA" in read["kinds"] and not read["required"].gpus:
            read["required"] = replace(read["required"], gpus=1)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        wrong = str(getattr(error, "msg", error)) or "nested too deeply"  # which MemoryError stands for
        read["problem"] = f"{folder.name}/{path.name}:{line}: {wrong[:MOST_QUOTED]}"
    return Variant(path.stem, role, label, path, folder.root, folder.module(path.stem), **read)


@cache
def _read(source: bytes) -> dict[str, Any]:
    """What a file says of itself. Raises SyntaxError with the line of what is wrong."""
    tree = ast.parse(source)  # of bytes, Python says which line it cannot decode
    sentence = (ast.get_docstring(tree) or "").strip().split("\n", 1)[0]
    if not sentence:
        raise SyntaxError("the first line must be a docstring that says the mechanism")
    required = _requirements(tree) if b"requires" in source else Requirements()
    calls = [call for statement in bindings(tree, "workload") if (call := called(statement))]
    words = [word for call in calls for word in call.keywords]
    literals = {word.arg: word.value.value for word in words if word.arg and isinstance(word.value, ast.Constant)}
    return {"sentence": sentence, "required": required, "literals": literals}


def bindings(tree: ast.Module, name: str) -> list[ast.stmt]:
    """The statements of a module that give `name` a value, in whatever way."""
    return [statement for statement in tree.body if name in _bound(statement)]


def _bound(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    places: Sequence[ast.AST] = [statement]
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        places = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    nodes = [node for place in places for node in ast.walk(place)]
    names = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return names | {node.asname or node.name.split(".")[0] for node in nodes if isinstance(node, ast.alias)}


def called(statement: ast.stmt) -> ast.Call | None:
    """The call in `name = f(...)` or `name: T = f(...)`; None for every other statement."""
    match statement:
        case ast.Assign(targets=[ast.Name()], value=ast.Call() as call) | ast.AnnAssign(value=ast.Call() as call):
            return call
    return None


def _requirements(tree: ast.Module) -> Requirements:
    """The needs that a file declares. Raises SyntaxError where they cannot be read from its text, or are none."""
    found = bindings(tree, "requires")
    if not found:
        return Requirements()
    statement, call = found[-1], called(found[-1])
    written, place = ast.unparse(statement).splitlines()[0][:MOST_TOLD], ("", statement.lineno, 1, "")
    unreadable = f"`{written}` must be `requires = needs(...)`, once, with literal keyword arguments"
    if len(found) > 1 or call is None or ast.unparse(call.func) != "needs" or call.args:
        raise SyntaxError(unreadable, place)
    try:
        arguments = {word.arg or "**": ast.literal_eval(word.value) for word in call.keywords}
    except (ValueError, TypeError):
        raise SyntaxError(unreadable, place) from None
    try:
        return needs(**arguments)
    except (TypeError, ValueError) as error:
        raise SyntaxError(f"`{written}`: {error}", place) from None


def choose(root: Path, words: Iterable[str]) -> list[Pair]:
    """The pairs that words name. Raises TargetError for a word that names nothing."""
    return select(*survey(root, words))


def survey(root: Path, words: Iterable[str]) -> tuple[list[Pair], list[Target]]:
    """All pairs of the chapters under `root` and of the other folders that words name, and what the words name.

    Raises TargetError for a word that names nothing, and for two folders of one name.
    """
    pairs = find_pairs(root)
    targets = [_target(word.strip(), root, pairs) for word in words]
    own: dict[str, Folder] = {}
    for folder in (target.folder for target in targets if target.folder and not target.folder.package):
        if not os.path.isdir(folder.path):
            raise TargetError(f"{quoted(str(folder.path))} is not a target: there is no such folder; {FORMS}")
        if own.setdefault(folder.name, folder) != folder:
            both = f"{own[folder.name].path} and {folder.path}"
            raise TargetError(f"{both} are both called {folder.name} in results: take them one after the other")
    return pairs + [pair for folder in own.values() for pair in pairs_in(folder)], targets


def _target(word: str, root: Path, pairs: Iterable[Pair]) -> Target:
    """What a word names; a pair's name is enough where it is the only one.

    Raises TargetError, which offers the nearest pair where a word looks like one.
    """
    named = [pair for pair in pairs if pair.name == word]
    if len(named) > 1:
        chapters = " and ".join(pair.chapter for pair in named)
        raise TargetError(f"{quoted(word)} is a pair of {chapters}: write {named[0].key}")
    try:
        return Target(named[0].folder, word) if named else parse(word, root)
    except TargetError as error:
        known = {"all": "all"}
        for pair in pairs:
            known |= {pair.name: pair.key, pair.key: pair.key, pair.chapter: pair.chapter}
            known |= {file: file for file in (f"{pair.chapter}/{variant.name}.py" for variant in pair.variants)}
        close = difflib.get_close_matches(word.lower()[:MOST_TOLD], known, n=1, cutoff=0.7)
        raise TargetError(f"{error}; did you mean {known[close[0]]}?" if close else str(error)) from None


def select(pairs: list[Pair], targets: Iterable[Target]) -> list[Pair]:
    """The pairs that the targets name, each once, in the order in which they are named.

    Raises TargetError for a folder without pairs, an unknown pair or an unknown file.
    """
    wanted: dict[str, set[str]] = {}
    for target in targets:
        here = [pair for pair in pairs if target.is_in(pair.chapter)]
        named = [pair for pair in here if target.pair in (None, pair.name)]
        if target.folder and not here:
            files = "baseline_x.py and optimized_x.py, which `benchmark_cli new` writes"
            raise TargetError(f"{target.folder.name} has no pairs: a pair is {files}")
        if here and not named:
            key = f"{here[0].chapter}:{target.pair}"
            elsewhere = [pair.key for pair in pairs if pair.name == target.pair]
            raise TargetError(f"{key} is not a pair{nearest(key, elsewhere or [pair.key for pair in here])}")
        for pair in named:
            known = [variant.name for variant in pair.variants]
            if target.variant is not None and target.variant not in known:
                hint = nearest(target.variant, known)
                raise TargetError(f"{pair.chapter}/{target.variant}.py does not exist{hint}")
            wanted.setdefault(pair.key, set()).update([target.variant] if target.variant else known)
    by_key = {pair.key: pair for pair in pairs}
    return [by_key[key].only(names) for key, names in wanted.items()]
