"""The parts of docs/benchmark_harness_guide.md that are made from the code: constants, map of modules, artifact schema.

    python -m tools.documentation.harness_guide

writes them anew between their markers. tests/unit/test_harness_guide.py fails where they are not what the code says.
"""

import ast
import dataclasses
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import AwareDatetime

from common.python.artifacts import Line
from common.python.builds import Build
from common.python.expectations import Expectations
from common.python.journal import write
from common.python.markdown import replace_between_markers
from common.python.peak_store import Survey
from common.python.results import Manifest, PairResult, Summary
from tools.arguments import Arguments

ROOT = Path(__file__).resolve().parents[2]
GUIDE = Path("docs") / "benchmark_harness_guide.md"
RULES = Path("tests") / "unit" / "test_rules.py"  # holds the layers that it enforces
FILES: dict[str, type] = {
    "summary.json": Summary,
    "manifest.json": Manifest,
    "chNN_pair/results/benchmark_test_results.json": PairResult,
    "journal.jsonl, each line": Line,
    "peaks.json": Survey,
    "build.json": Build,
    "chNN/expectations_<gpu>.json": Expectations,
}
CONSTANTS = (  # module, name, what it decides
    ("schedule", "BUDGET_S", "seconds of sampling, by default"),
    ("schedule", "QUICK", "of them, with --quick"),
    ("schedule", "ROUNDS", "rounds of a session, while the time budgets last"),
    ("schedule", "FEWEST_ROUNDS", "rounds below which there is no verdict"),
    ("schedule", "MOST_ROUNDS", "rounds after which a session ends, however wide its interval"),
    ("schedule", "PRECISE", "relative half-width of the interval at which sampling stops"),
    (
        "schedule",
        "OVERHEAD",
        "sampling budgets that preparing, proving and warming up may take after the first round",
    ),
    (
        "schedule",
        "FEW_BLOCKS",
        "a round's blocks, where they take no longer than `FEW_S`, whatever its share of the budget",
    ),
    ("schedule", "FEW_S", "seconds that these few may take"),
    ("settings", "ROOM_BYTES", "bytes free on each GPU with which a pair's ranks start while the last one's end"),
    ("schedule", "TRIALS", "proofs of each variant before timing, at each size"),
    ("schedule", "ENOUGH", "sampling budgets of these, at the size that is timed, after which no further one is begun"),
    ("schedule", "COMPANY", "times these seconds at most, where others are at work: as many as there are sessions"),
    ("session", "PROBES", "samples of each variant that are proven while they are timed"),
    ("session", "LOOK_S", "seconds after which NVML is read again, behind a block; and behind each round"),
    ("session", "FIRST_WARM_S", "seconds of warm-up at most, in the first round; later, each variant runs once"),
    ("session", "SLOW_PREPARE_S", "seconds of a second prepare beyond which a variant sits out the middle rounds"),
    ("sampling", "WINDOW", "samples of each variant in a warm-up window"),
    ("statistics", "STEADY", "relative difference of two warm-up windows that counts as settled"),
    (
        "statistics",
        "FALLING",
        "two windows count as settled too, if their trend, in standard deviations, is above this",
    ),
    ("statistics", "RISING", "and below this"),
    ("sampling", "RESTED_US", "microseconds of delay up to which every variant waits as long as any other"),
    (
        "sampling",
        "OTHERS",
        "share of a step's time that other threads may have where a core is still sought",
    ),
    ("sampling", "LONG_US", "microseconds from which on a step is not warmed up where it has been called just before"),
    ("sampling", "LONG_ON_DEVICE_US", "the same on the device's clock, where it runs once in the first round"),
    ("sampling", "WALLED", "rounds in which such a step is timed by the host's clock too; a shorter one is in all"),
    ("sampling", "SHORT_US", "microseconds below which a sample holds several steps"),
    ("sampling", "MOST_STEPS", "steps in a sample at most"),
    ("preparation", "PAD_BYTES", "bytes of the random pad that moves a round's buffers, at most"),
    ("statistics", "MARGIN", "what a reader cares about: the margin of every verdict and of the control"),
    (
        "statistics",
        "STANDS_OUT",
        "confidence with which baseline and control must differ, to tell what their buffers' addresses do",
    ),
    ("statistics", "APART", "times the variance that noise gives the levels of blocks, beyond which they drift apart"),
    ("statistics", "OWN", "of a round's variance: what an end-to-end run errs beside its rounds' mean"),
    ("statistics", "HOST_ROUNDS", "rounds that what the host's pace says of their deviation counts as much as"),
    (
        "judgement",
        "PACE_PART",
        "of the pace's deviation, that of ratios between rounds, where a side is the host's alone",
    ),
    (
        "judgement",
        "CHANNEL_US",
        "microseconds between two kernels by which processes differ, and so a ratio on the device's clock",
    ),
    ("judgement", "NEAR_FLOOR", "times the floor below which a result says that it is near it"),
    ("untrue_times", "SLACK_US", "microseconds of wall time that launch and synchronisation may take"),
    ("untrue_times", "SHARE", "share of the device time that may end after the step's own stream"),
    ("judgement", "LATE_SHARE", "share of late device samples beyond which the pair says so"),
    ("untrue_times", "CLOCKS_DIFFER", "times the parent's wait that a block's samples may add up to"),
    ("performance_targets", "CLOCK_HEADROOM", "how far a datasheet's rate may be beaten, since boards boost"),
    ("performance_targets", "DISK_HEADROOM", "how far a disk's surveyed rate may be beaten, since others share it"),
    (
        "quiet_core",
        "NEAR",
        "times the best pace seen on the host, within which a core is quiet, and a worker stays on it",
    ),
    ("telemetry", "MOST_PACE", "times the host's best pace beyond which an end-to-end block is left out"),
    ("verification", "ELEMENT_FACTOR", "tolerances that one element may be off, in rms of the reference"),
    ("runner", "PAIR_LIMIT_S", "seconds for a pair, times --timeout-multiplier"),
    ("turns", "MOST", "pairs side by side at most"),
    ("turns", "CORES", "cores of the host that each of them must have"),
    ("turns", "HOST_GIB", "GiB of the host's memory, likewise"),
    ("turns", "GPU_GIB", "GiB of a GPU's memory, likewise, where it does not say that it needs more"),
    ("turns", "LARGE", "share of it with which a pair begins before all others"),
    ("sharing", "PATIENCE_S", "seconds for which others stand still while a worker times kernels to choose one"),
    (
        "clock",
        "OTHERS_US",
        "microseconds within which a small kernel is done where no other process has work on the GPU",
    ),
    ("expectations", "FEWEST_RUNS", "runs that an expectation is the median of; of fewer it is provisional"),
    ("expectation_check", "LOSS", "loss that `met` excludes"),
    ("expectation_check", "TIME_MARGIN", "margin on a variant's own time, which nothing cancels drift in"),
)


def layers(root: Path) -> dict[str, list[str]]:
    """The modules of common/python by layer, from the lowest to the highest, as the rule about imports has them."""
    return {layer: names.split() for layer, names in ast.literal_eval(_assigned(root / RULES, "LAYERS")).items()}


def workers(root: Path) -> set[str]:
    """The modules that run in worker processes only, and may import torch."""
    named = (node.value for node in ast.walk(_assigned(root / RULES, "WORKERS")) if isinstance(node, ast.Constant))
    return {name for name in named if isinstance(name, str)}


def _assigned(file: Path, name: str) -> ast.expr:
    """What a file gives to `name` at its top, alone or as one of several: `A, B = 1, 2`. ValueError if nothing."""
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
            several = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
            pairs = zip(target.elts, value.elts) if several else [(target, value)]  # type: ignore[attr-defined]
            for given, part in pairs:
                if isinstance(given, ast.Name) and given.id == name:
                    return part
    raise ValueError(f"{file} gives nothing to {name}")


def constants(root: Path) -> str:
    """A table of the numbers that the harness decides by, as its modules have them; none is imported for it."""
    lines = ["| constant | value | what it decides |", "| --- | --- | --- |"]
    for module, name, meaning in CONSTANTS:
        value = _assigned(root / "common" / "python" / f"{module}.py", name)
        lines.append(f"| `{module}.{name}` | {ast.unparse(value)} | {meaning} |")
    return "\n".join(lines)


def module_map(root: Path) -> str:
    """A table for each layer, the highest first: module, whether it has torch, the first line of its docstring."""
    parts, inside = [], workers(root)
    for layer, names in reversed(layers(root).items()):
        lines = [
            f"### {layer}: {len(names)} modules",
            "",
            "| module | torch | what it is for |",
            "| --- | --- | --- |",
        ]
        for name in names:
            path = root / "common" / "python" / f"{name}.py"
            said = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n")[0]
            place = "workers" if name in inside else ""
            lines.append(f"| [{name}](../common/python/{name}.py) | {place} | {_cell(said)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def schema() -> str:
    """A table for each model: those of the files, then what they are made of, each where it is first met."""
    parts = ["| file | holds |", "| --- | --- |"]
    parts += [f"| `{file}` | {_link(model)} |" for file, model in FILES.items()]
    tables = [_table(model) for model in models()]
    return "\n\n".join(["\n".join(parts), *tables])


def models() -> list[type]:
    """Every model of the files, each once."""
    found: list[type] = []
    pending = list(FILES.values())
    while pending:
        model = pending.pop(0)
        if model not in found:
            found.append(model)
            inner = [part for _, kind, _ in fields(model) for part in _parts(kind) if _is_model(part)]
            pending = inner + pending
    return found


def fields(model: type) -> Iterator[tuple[str, Any, str]]:
    """Name, type and meaning of each field, of a pydantic model or of a dataclass."""
    if dataclasses.is_dataclass(model):
        hints = typing.get_type_hints(model)
        yield from ((field.name, hints[field.name], "") for field in dataclasses.fields(model))
    else:
        known: dict[str, Any] = getattr(model, "model_fields")  # noqa: B009 -- mypy sees a plain type
        yield from ((name, field.annotation, field.description or "") for name, field in known.items())


def _table(model: type) -> str:
    lines = [f"### {model.__name__}"]
    lines += ["", _cell(" ".join(model.__doc__.split()))] if model.__doc__ else []
    lines += ["", "| field | type | meaning |", "| --- | --- | --- |"]
    lines += [f"| `{name}` | {_spelled(kind)} | {_cell(meaning)} |" for name, kind, meaning in fields(model)]
    return "\n".join(lines)


def _spelled(kind: Any) -> str:
    """A type in words; models as links."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inside)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_spelled(part) for part in inside)
    if origin is list:
        return f"list of {_spelled(inside[0])}"
    if origin is dict:
        return f"object of {_spelled(inside[1])}"
    if kind is type(None):
        return "null"
    return _link(kind) if _is_model(kind) else PLAIN[kind]


PLAIN = {str: "text", int: "whole number", float: "number", bool: "true or false", AwareDatetime: "time, ISO 8601"}


def _parts(kind: Any) -> Iterator[Any]:
    yield kind
    for inner in typing.get_args(kind):
        yield from _parts(inner)


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and (dataclasses.is_dataclass(kind) or hasattr(kind, "model_fields"))


def _cell(text: str) -> str:
    """Our own Markdown, as docstrings have it, in a cell."""
    return text.replace("|", "\\|")


def _link(model: type) -> str:
    return f"[{model.__name__}](#{model.__name__.lower()})"


def current(text: str, root: Path) -> str:
    """The guide with these parts as the code has them now. Raises ValueError without their markers."""
    for name, part in (("constants", constants(root)), ("modules", module_map(root)), ("schema", schema())):
        text = replace_between_markers(text, part, f"<!-- {name}:begin -->", f"<!-- {name}:end -->")
    return text


if __name__ == "__main__":
    Arguments("harness_guide", __doc__).parse_args()
    write(ROOT / GUIDE, current((ROOT / GUIDE).read_text(), ROOT))
    print(f"wrote {GUIDE}")
