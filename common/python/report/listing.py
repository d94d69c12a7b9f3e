"""What `list` and `show` print: every pair, the chapters there are, a chapter's pairs, or a pair's sources.

`list` must answer at once, so rich is loaded for sources alone.
"""

import json
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from common.python.base.machine import Machine
from common.python.base.machine import machine as this_machine
from common.python.base.text import clean, counted
from common.python.corpus.discovery import Pair, Variant, select, survey
from common.python.corpus.targets import CHAPTERS, Folder, Target
from common.python.requirements import Requirements, unmet
from common.python.workers.launch import ONE_HOST

if TYPE_CHECKING:
    from rich.panel import Panel

PIPE_COLUMNS = 120  # of running text where nothing says how wide it may be
MARK = "on #3b3212"  # of lines that the file beside them lacks
LEAST_BODY = 30  # of a text beside its head
LEAST_COLUMNS = 60  # of a source beside another; on a narrower terminal they stand one below the other
NEXT = (
    "`benchmark_cli show ch07:transpose` shows the sources of a pair, `benchmark_cli run ch07:transpose` measures it, "
    "and `benchmark_cli show` lists the chapters."
)


class Line(NamedTuple):
    """What `list` says of a variant, in this order."""

    pair: str
    variant: str  # its label
    kind: str  # PyTorch, Triton, CUDA, or several with a + between them
    needs: str
    here: str  # yes, or why it does not run here
    mechanism: str


def print_list(
    pairs: list[Pair], machine: Machine, kind: str | None = None, runnable: bool = False, as_json: bool = False
) -> None:
    """What each variant does, and whether it runs here: on a terminal by pairs, in a pipe a tab-separated line each.

    `kind` (triton, cuda, pytorch) keeps the pairs that have a variant of this kind, peers aside, and `runnable` those
    whose baseline and one optimized variant can be timed here. JSON is a list of `Line`s.
    """
    blocks = []
    for pair, own, here in _lines(pairs, machine):
        kinds = {word.lower() for variant in pair.variants if variant.role != "peer" for word in variant.kinds}
        if kind in {None, *kinds} and (not runnable or here):
            blocks.append(own)
    if as_json:
        print(json.dumps([line._asdict() for own in blocks for line in own], indent=1))
    elif not sys.stdout.isatty():
        sys.stdout.writelines("\t".join(line) + "\n" for own in blocks for line in own)
    else:
        for own in blocks:
            print(f"{own[0].pair}\n{_block(own)}\n")
        print(hanging("", f"{counted(len(blocks), 'pair')}. {NEXT}"))


def timed_here(pairs: list[Pair], machine: Machine) -> str:
    """How many of the pairs `list --runnable` names on this machine."""
    able = sum(here for _, _, here in _lines(pairs, machine))
    return f"{able} of {counted(len(pairs), 'pair')} can be timed here: `benchmark_cli list --runnable` names them"


def _lines(pairs: list[Pair], machine: Machine) -> Iterator[tuple[Pair, list[Line], bool]]:
    """Each pair, the lines of its variants, and whether its baseline and one optimized variant can be timed here."""
    for pair in pairs:
        own = [_line(pair, variant, machine) for variant in pair.variants]
        here = {variant.role for variant, line in zip(pair.variants, own) if line.here == "yes"}
        yield pair, own, here >= {"baseline", "optimized"}


def _line(pair: Pair, variant: Variant, machine: Machine) -> Line:
    required = variant.required
    if pair.gpus > max(required.gpus, 1):
        required = replace(required, gpus=pair.gpus)
    lacks = unmet(variant.required, machine) + ONE_HOST.unmet(pair, machine)
    if not lacks and not machine.gpus and ("Triton" in variant.kinds or pair.gpus > 1):
        lacks = ["without a GPU it is proven, not timed"]
    here = "; ".join([variant.problem] if variant.problem else dict.fromkeys(lacks)) or "yes"
    cells = (pair.key, variant.label, "+".join(variant.kinds), needs_text(required), here, variant.sentence)
    return Line(*map(clean, cells))  # names of files are foreign text, too


def _block(lines: Sequence[Line]) -> str:
    """A pair's variants, then what they need and what of it is missing, said once for all that it is true of."""
    labels, kinds = (max(len(line[column]) for line in lines) for column in (1, 2))
    shown = [hanging(f"  {line[1]:<{labels}}  {line[2]:<{kinds}}  ", line[5]) for line in lines]
    for head, column, nothing in (("needs", 3, ""), ("not here", 4, "yes")):
        told: dict[str, list[str]] = {}
        for line in lines:
            told.setdefault(line[column], []).append(line[1])
        told.pop(nothing, None)
        parts = [text if len(who) == len(lines) else f"{text} ({', '.join(who)})" for text, who in told.items()]
        shown += [hanging(f"  {head}: ", "; ".join(parts))] * bool(parts)
    return "\n".join(shown)


def hanging(head: str, body: str) -> str:
    """`head`, then `body` within the terminal's width, its further lines under its first, or all below a long head."""
    width, under = shutil.get_terminal_size((PIPE_COLUMNS, 0)).columns, " " * len(head)
    if width < len(head) + LEAST_BODY:
        head, under = f"{head.rstrip()}\n    ", "    "
    text = textwrap.wrap(body, width - len(under), break_on_hyphens=False)
    return head + f"\n{under}".join(text)


def needs_text(required: Requirements) -> str:
    """Needs as a reader would say them: `1 GPU, sm_90, cublas_v2.h`."""
    words = [counted(required.gpus, "GPU")] * bool(required.gpus)
    words += [f"sm_{required.sm}"] * bool(required.sm) + list(required.targets)
    words += [f"{required.memory_gib:g} GiB"] * bool(required.memory_gib)
    words += [f"{required.host_memory_gib:g} GiB host"] * bool(required.host_memory_gib)
    words += [f"{required.cores} cores"] * (required.cores > 1)
    words += ["O_DIRECT"] * required.direct_io + ["huge pages"] * required.huge_pages
    return ", ".join([*words, *required.modules, *required.tools, *required.headers])


def print_targets(root: Path, words: Sequence[str], as_json: bool = False) -> None:
    """Show what words name, the chapters if there are none. Raises TargetError for a word that names nothing.

    JSON is an object of two lists: the `chapters` that are shown, and the `pairs` with their sources.
    """
    pairs, targets = survey(root, words)
    select(pairs, targets)  # all of them exist, before any is shown
    every = [Folder(root / name, name) for name in CHAPTERS if (root / name).is_dir()]
    whole = [target.folder for target in targets or [Target()] if target.pair is None]
    asked = [folder for named in whole for folder in ([named] if named else every)]
    chapters = [_chapter(folder, pairs) for folder in asked]
    named = select(pairs, [target for target in targets if target.pair])
    if as_json:
        print(json.dumps({"chapters": chapters, "pairs": [*map(_sources, named)]}, indent=1))
        return
    if not words:
        for told in chapters:
            count = len(told["pairs"])
            head = f"{told['chapter']}  {count or 'no':>2} pair{'s' * (count != 1):<1}  "
            print(hanging(head, told["title"] or "no README.md"))
        print("\n`benchmark_cli show ch07` shows a chapter's question and its pairs.")
        return
    for folder, told in zip(asked, chapters):
        _print_chapter(folder, told, [pair for pair in pairs if pair.key in told["pairs"]])
    for pair in named:
        _print_pair(pair)


def _chapter(folder: Folder, pairs: Sequence[Pair]) -> dict[str, Any]:
    """Its name, its README's title without the number and first paragraph that asks something, and its pairs."""
    path = folder.path / "README.md"
    first, *paragraphs = (path.read_text(errors="replace") if path.is_file() else "").split("\n\n")
    asks = next((text for text in paragraphs if "?" in text), "")
    title, question = clean(first.lstrip("# ").split(": ", 1)[-1]), clean(asks.replace("*", ""))
    own = [pair.key for pair in pairs if pair.chapter == folder.name]
    return {"chapter": folder.name, "title": title, "question": question, "pairs": own}


def _sources(pair: Pair) -> dict[str, Any]:
    variants = []
    for variant in pair.variants:
        paths = [path for path in (variant.path, variant.path.with_suffix(".cu")) if path.exists()]
        files = {f"{path.parent.name}/{path.name}": path.read_text(errors="replace") for path in paths}
        told = {"kind": "+".join(variant.kinds), "mechanism": variant.sentence, "files": files}
        variants.append({"variant": variant.label, "role": variant.role} | told)
    return {"pair": pair.key, "variants": variants}


def _print_chapter(folder: Folder, told: Mapping[str, Any], pairs: list[Pair]) -> None:
    print(f"{folder.name}  {told['title']}\n")
    if told["question"]:
        print(hanging("", told["question"]), end="\n\n")
    for _, own, _ in _lines(pairs, this_machine()):
        print(f"{own[0].pair}\n{_block(own)}\n")
    example = shlex.quote(clean(f"{folder}:{pairs[0].name}")) if pairs else folder.name
    read = f"{folder.name}/README.md explains them, " * bool(told["title"])
    read += f"`benchmark_cli show {example}` shows the sources, `benchmark_cli run {example}` measures."
    print(hanging("", read))


def _print_pair(pair: Pair) -> None:
    """The baseline beside each rung where there is room: Python first, then the .cu files where there are any.

    Behind the first files, which are whole, Python is cut to the solution.
    """
    from rich.columns import Columns
    from rich.text import Text

    from common.python.report.tables import wide_console

    console, baseline, rows = wide_console(), pair.baseline, [[variant] for variant in pair.variants]
    if baseline and len(rows) > 1 and console.width >= 2 * LEAST_COLUMNS:
        rows = [[baseline, other] for other in pair.variants if other is not baseline]
    for number, sides in enumerate(rows):
        console.rule(Text(clean(f"{pair.key}: {' | '.join(side.label for side in sides)}")))
        for side in sides:
            console.print(Text(clean(f"{side.label}: {side.sentence}")))
        width = console.width // len(sides) - 1
        for paths in ([side.path for side in sides], [side.path.with_suffix(".cu") for side in sides]):
            if panels := _panels([path for path in paths if path.exists()], width, number > 0):
                console.print(Columns(panels, padding=0))


def _panels(paths: Sequence[Path], width: int, cut: bool) -> list["Panel"]:
    """Files beside each other, with what only one of two has marked as a report marks it."""
    from rich.panel import Panel
    from rich.syntax import Syntax
    from rich.text import Text

    from common.python.report import sources

    texts = [[line.rstrip() for line in path.read_text(errors="replace").split("\n")] for path in paths]
    named = [sources.Panel(f"{path.parent.name}/{path.name}", text, cut=cut) for path, text in zip(paths, texts)]
    panels = []
    for panel in sources.marked(named):
        runs, end = [run for _, _, own in panel.parts() for run in own], 0
        language = "cuda" if panel.file.endswith(".cu") else "python"
        code = Syntax("\n".join(text for _, text in runs), language, word_wrap=True)
        for marked, text in runs:
            begin, end = end + 1, end + 1 + text.count("\n")
            if marked:
                code.stylize_range(MARK, (begin, 0), (end, len(text.rpartition("\n")[2])))
        panels.append(Panel(code, title=Text(clean(panel.file)), width=width))
    return panels
