"""The pairs that the harness is tested with, laid out as chapters whose rungs are the baseline again.

A rung either prepares what its baseline prepares, or what the baseline's file offers for planting something known. So
every session here is one over an ordinary tree of pairs, and nothing in the harness knows that it is being tested.
"""

import ast
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common.python.base.results import CONTROL
from common.python.corpus.discovery import Pair, bindings, find_pairs
from common.python.corpus.targets import pair_name

CHAPTERS = Path(__file__).resolve().parents[2]
OWN = Path(__file__).resolve().parent / "pairs"
SHORT, SPIN, PLANTED = (OWN / f"ch01/baseline_{name}.py" for name in ("short", "spin", "planted"))
LEVER = 0.5  # a planted share that tells what the others really add; nominally a tenth of its error counts
SUBJECTS = (  # pairs of which only the baseline is taken
    CHAPTERS / "ch07/baseline_transpose.py",  # bound by memory
    CHAPTERS / "ch09/baseline_softmax.py",  # several kernels
    CHAPTERS / "ch08/baseline_histogram_privatized.py",  # bound by atomics
    CHAPTERS / "ch01/baseline_cuda_graph.py",  # bound by launches
    CHAPTERS / "ch01/baseline_goodput_loop.py",  # bound by the host
    CHAPTERS / "ch01/baseline_pinned_copy.py",  # a copy over PCIe
    CHAPTERS / "ch14/baseline_triton_persistent_matmul.py",  # bound by the power cap
    CHAPTERS / "ch18/baseline_flash_forward.py",  # milliseconds
    SHORT,  # microseconds
    SPIN,  # one block
)


def subjects(gpu: bool) -> list[Path]:
    """The ten on a GPU; on a CPU those that have a size for it."""
    return list(SUBJECTS) if gpu else [path for path in SUBJECTS if '"cpu":' in path.read_text()]


@dataclass(frozen=True)
class Lane:
    """Two variants of a session that are compared with each other and with no third.

    `planted` is what slows `below`: a share of its own time, for SPIN microseconds before the launch.
    """

    above: str
    below: str
    planted: float


@dataclass(frozen=True)
class Laid:
    """A pair in its tree, and what is to be compared."""

    pair: Pair
    lanes: list[Lane]


def lay_lanes(root: Path, baseline: Path, planted: Sequence[float]) -> Laid:
    """Lay out a pair with a lane for each planted slowdown; those of 0 are the variant against itself.

    The first lane is the pair's own comparison, the second begins with the session's control, later ones have a twin of
    the baseline of their own: what disturbs one lane's baseline is not in another's, but for that of the LEVER.
    """
    name, rungs, lanes = pair_name(baseline.stem), {}, []
    for index, share in enumerate(planted):
        below = f"optimized_{name}" if index == 0 else f"optimized_{name}__lane{index}"
        above = {0: baseline.stem, 1: CONTROL}.get(index, f"optimized_{name}__same{index}")
        rungs[below] = f"partial(given.slowed, {share})" if share else "given.prepare"
        if share == LEVER:
            above = baseline.stem
        elif index > 1:
            rungs[above] = "given.prepare"
        lanes.append(Lane(above, below, share))
    folder = root / baseline.parent.name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__init__.py").touch()
    for path in (baseline, baseline.with_suffix(".cu")):
        if path.exists():
            shutil.copy(path, folder)
    for rung, prepare in rungs.items():
        _write_variant(folder, rung, baseline, prepare, "The work of its baseline, slowed by a known time or by none.")
    return Laid(next(pair for pair in find_pairs(root) if pair.name == name), lanes)


def lay_cheats(root: Path, problems: Path) -> list[Pair]:
    """Lay out each way to cheat as a pair: the problem's own `prepare` as baseline, the cheat, and its honest twin.

    Each module in `problems` states a problem. Its public functions but `prepare` cheat, or do the work if `honest`. A
    function that returns a `Prepare` is called when its variant is imported; the others, when it is prepared.
    """
    folder = root / problems.name
    shutil.copytree(problems, folder)
    ways = [(source, way) for source in problems.glob("*.py") for way in ast.parse(source.read_text()).body]
    for source, way in ways:
        if isinstance(way, ast.FunctionDef) and way.name != "prepare" and not way.name.startswith("_"):
            on_import = way.returns is not None and ast.unparse(way.returns) == "Prepare"
            call = f"given.{way.name}(" if on_import else f"partial(given.{way.name}, "
            plain, cheats = "The work itself.", ast.get_docstring(way) or ""
            _write_variant(folder, f"baseline_{way.name}", source, "given.prepare", plain)
            _write_variant(folder, f"optimized_{way.name}", source, f"{call}honest=False)", cheats)
            _write_variant(folder, f"optimized_{way.name}__honest", source, f"{call}honest=True)", plain)
    return find_pairs(root)


def _write_variant(folder: Path, name: str, source: Path, prepare: str, sentence: str) -> None:
    """Write a variant that prepares what the module `source`, by the name `given`, offers. It needs what that needs."""
    lines = [
        f'"""{sentence}"""',
        "from functools import partial",
        f"from {folder.name} import {source.stem} as given",
        "workload = given.workload",
    ]
    if needed := bindings(ast.parse(source.read_text()), "requires"):
        lines += ["from common.python.requirements import needs", ast.unparse(needed[-1])]
    (folder / f"{name}.py").write_text("\n".join([*lines, f"prepare = {prepare}", ""]))
