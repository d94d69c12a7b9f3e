"""The rungs of another commit or checkout, to be timed beside today's: `run ch07:transpose --against HEAD~1`."""

import ast
import difflib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from common.python.base import manifest
from common.python.base.machine import crowding, machine
from common.python.base.manifest import git
from common.python.base.toolkit import ROOT
from common.python.corpus.discovery import Pair, Variant, bindings, called, read_variant
from common.python.corpus.targets import Folder, TargetError, quoted
from common.python.workers.process import START_LIMIT_S, WorkerError, one_worker

PREFIX = "benchmark-against-"  # of a worktree's folder; the number of the process that made it follows
NO_HOOKS = ("-c", "core.hooksPath=/dev/null")
TOLD = ("torch", "triton", "python")  # the first that differs names the rungs of another Python
MOST_TOLD = 400  # characters of a difference


def with_refs(pairs: list[Pair], ref: str, stack: ExitStack, say: Callable[[str], None]) -> list[Pair]:
    """The pairs with their rungs as they are at `ref`: a commit, whose tree exists until `stack` closes, or a checkout.

    `say` hears of what is not there. Raises TargetError where nothing is, and where a pair's workload asks for
    something else there.
    """
    trees, found = dict[Path, tuple[str, str, Path]](), list[Pair]()
    for pair in pairs:
        top = Path(git(pair.folder.path, "rev-parse", "--show-toplevel") or pair.folder.root).resolve()
        if top not in trees:
            trees[top] = stack.enter_context(_tree(top, ref))
        short, where, tree = trees[top]
        there = Folder(tree / pair.folder.path.resolve().relative_to(top), pair.folder.package)
        rungs = [v for v in pair.variants if v.role == "optimized" and (there.path / v.path.name).is_file()]
        if rungs:
            _refuse_other_workload(pair, there, ref)
        else:
            say(f"{pair.key} has no rung at {ref}")
        refs = [_named(read_variant(there.path / rung.path.name, there), short, f"at {where}") for rung in rungs]
        found.append(replace(pair, variants=pair.variants + refs))
    if not any(variant.role == "ref" for pair in found for variant in pair.variants):
        raise TargetError(f"--against {ref}: none of these pairs is there")
    return found


def with_python(pairs: list[Pair], python: str) -> list[Pair]:
    """The pairs with their rungs in another Python beside: the same files, with another torch or Triton.

    Raises TargetError where that cannot run them.
    """
    try:
        path, versions, gpu = look_into(python)
    except ValueError as error:
        raise TargetError(f"--against-python {quoted(python)} {error}") from None
    if machine().gpus and not gpu:
        raise TargetError(f"--against-python {quoted(python)} has a torch that sees no GPU")
    own = manifest.versions()
    told = {side: ", ".join(f"{name} {of[name]}" for name in TOLD) for side, of in (("there", versions), ("here", own))}
    note = f"--against-python {path}: {told['there']}; here {told['here']}"
    end = next((f"{name}-{versions[name]}" for name in TOLD if versions[name] != own[name]), "python")
    found = list[Pair]()
    for pair in pairs:
        if (pair.folder.root / "torch").is_dir():
            raise TargetError(f"--against-python would import torch from {pair.folder.root} too: run in a checkout")
        rungs = [variant for variant in pair.variants if variant.role == "optimized"]
        refs = [replace(_named(rung, end, f"in {told['there']}"), python=path) for rung in rungs]
        found.append(replace(pair, variants=pair.variants + refs, notes=[note]))
    return found


def look_into(python: str) -> tuple[str, dict[str, str | None], bool]:
    """The path of a Python, its versions as a manifest has them, and whether its torch sees a GPU.

    Raises ValueError, in one line, where workers cannot be started with it.
    """
    found = shutil.which(python)
    if found is None:
        raise ValueError("is no executable file")
    path = os.path.abspath(found)
    with tempfile.TemporaryDirectory(prefix="benchmark-") as logs:
        try:
            with one_worker(ROOT, Path(logs) / "log", python=path) as worker:
                there = worker.call("describe", START_LIMIT_S * crowding())
        except OSError:
            raise ValueError("is no Python") from None
        except WorkerError as error:
            said = worker.log_tail().strip().rpartition("\n")[2] or error.reason
            raise ValueError(f"cannot run workers ({said}): name the executable of a Python with torch") from None
    return path, there["versions"], there["device"] != "cpu"


def _named(rung: Variant, short: str, where: str) -> Variant:
    """A rung as a variant to compare with, which `short` tells from it."""
    end, told = re.sub(r"[^\w.~^-]", "_", short), f"{where}: {rung.sentence}"
    return replace(rung, name=f"{rung.name}@{end}", role="ref", label=f"{rung.label}@{end}", sentence=told)


@contextmanager
def _tree(top: Path, ref: str) -> Iterator[tuple[str, str, Path]]:
    """A commit or another checkout: a short name, its hash or path, and its files, which are a commit's for a while."""
    commit = git(top, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
    if commit is None:
        if not os.path.isdir(ref):
            raise TargetError(f"--against {quoted(ref)} is neither a commit of {top} nor a folder")
        yield Path(ref).resolve().name, ref, Path(ref).resolve()
        return
    _remove_orphans(top)
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-", ignore_cleanup_errors=True) as folder:
        try:
            if git(top, *NO_HOOKS, "worktree", "add", "--detach", folder, commit) is None:
                raise TargetError(f"--against {ref}: `git worktree add` fails in {top}")
            yield ref, commit[:12], Path(folder).resolve()
        finally:
            git(top, "worktree", "remove", "-ff", folder)


def _remove_orphans(top: Path) -> None:
    """Remove the worktrees of runs that were killed; those that a user made stay, be their folder there or not."""
    for line in (git(top, "worktree", "list", "--porcelain") or "").splitlines():
        folder = line.removeprefix("worktree ")
        pid = re.match(rf"{PREFIX}(\d+)-", Path(folder).name)
        if pid and not os.path.exists(f"/proc/{pid[1]}"):
            git(top, "worktree", "remove", "-ff", folder)


def _refuse_other_workload(pair: Pair, there: Folder, ref: str) -> None:
    """Raises TargetError, with the difference, where a pair's workload is not what it is in the folder `there`."""
    name, stated = f"baseline_{pair.name}.py", list[list[str]]()
    for folder in (there, pair.folder):
        try:
            stated.append(list(_stated(folder.path / name, folder.root, ["workload"], set())))
        except (OSError, SyntaxError, ValueError) as error:
            raise TargetError(f"--against {ref}: {folder.path / name} cannot be read: {error}") from None
    changes = difflib.unified_diff(stated[0], stated[1], n=0, lineterm="")
    if told := " ".join(line for line in changes if not re.match(r"@@|---|\+\+\+", line)):
        raise TargetError(f"{pair.key} asks for something else at {ref} (-) than here (+): {told[:MOST_TOLD]}")


def _stated(path: Path, root: Path, names: Iterable[str], seen: set[tuple[Path, str]]) -> Iterator[str]:
    """What a file says of these names, and of all that they name, in other files under `root` too, as lines."""
    tree = ast.parse(path.read_bytes())
    for name in names:
        statements = bindings(tree, name) if (path, name) not in seen else []
        seen.add((path, name))
        for statement in statements:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                yield from _imported(statement, name, root, seen)
                continue
            call = called(statement) if name == "workload" else None
            words = [word for word in call.keywords if word.arg != "rungs"] if call else []
            parts: list[ast.AST] = [call.func, *call.args, *words] if call else [statement]
            for part in parts:
                yield from ast.unparse(part).splitlines()
            named = [node for part in parts for node in ast.walk(part) if isinstance(node, ast.Name)]
            used = dict.fromkeys(node.id for node in named if isinstance(node.ctx, ast.Load))
            yield from _stated(path, root, used, seen)


def _imported(
    statement: ast.Import | ast.ImportFrom, name: str, root: Path, seen: set[tuple[Path, str]]
) -> Iterator[str]:
    """What an imported name stands for, as lines. The harness itself is the same for both."""
    module = f"{statement.module}." if isinstance(statement, ast.ImportFrom) else ""
    for alias in (alias for alias in statement.names if name in (alias.asname, alias.name.split(".")[0])):
        yield f"import {module}{alias.name}"
        if module.startswith("common.") or alias.name.startswith("common."):
            continue
        place = root.joinpath(*module.split("."))
        if (file := place.joinpath(*alias.name.split(".")).with_suffix(".py")).is_file():
            yield from ast.unparse(ast.parse(file.read_bytes())).splitlines()
        elif module and (file := place.with_suffix(".py")).is_file():
            yield from _stated(file, root, [alias.name], seen)
