"""What `list` and `show` print: every pair, the chapters there are, a chapter's pairs, or a pair's sources.

`list` must answer at once, so rich is loaded for sources alone.
"""

import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from common.python.base.machine import Machine
from common.python.base.text import clean, counted, wide_console
from common.python.corpus.discovery import Pair, Variant, select, survey
from common.python.corpus.targets import CHAPTERS, Target, homes
from common.python.requirements import Requirements, unmet
from common.python.workers.launch import ONE_HOST

if TYPE_CHECKING:
    from rich.panel import Panel

PIPE_COLUMNS = 120  # of running text where nothing says how wide it may be
LEAST_COLUMNS = 60  # of a source beside another; on a narrower terminal they stand one below the other
Line = tuple[str, ...]  # pair, variant, kind, needs, here (yes, or why not), mechanism
NEXT = (
    "`benchmark_cli show ch07:transpose` shows the sources of a pair, `benchmark_cli run ch07:transpose` measures it, "
    "and `benchmark_cli show` lists the chapters."
)


def print_list(pairs: list[Pair], machine: Machine) -> None:
    """What each variant does, and whether it runs here: on a terminal by pairs, in a pipe a tab-separated line each."""
    missing = cache(lambda required: unmet(required, machine))  # files share what they need
    lines = [_line(pair, variant, machine, missing) for pair in pairs for variant in pair.variants]
    if not sys.stdout.isatty():
        print("\n".join("\t".join(line) for line in lines))
        return
    for key, own in groupby(lines, key=lambda line: line[0]):
        print(f"{key}\n{_block(list(own))}\n")
    print(hanging("", f"{counted(len(pairs), 'pair')}. {NEXT}"))


def _line(pair: Pair, variant: Variant, machine: Machine, missing: Callable[[Requirements], list[str]]) -> Line:
    required = variant.required
    if pair.gpus > max(required.gpus, 1):
        required = replace(required, gpus=pair.gpus)
    lacks = missing(variant.required) + ONE_HOST.unmet(pair, machine)  # without any GPU, ranks use the CPU
    here = "; ".join([variant.problem] if variant.problem else dict.fromkeys(lacks)) or "yes"
    cells = (pair.key, variant.label, "+".join(variant.kinds), needs_text(required), here, variant.sentence)
    return tuple(map(clean, cells))  # names of files are foreign text, too


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
    """`head`, then `body` within the terminal's width, its further lines under its first."""
    width = shutil.get_terminal_size((PIPE_COLUMNS, 0)).columns
    return textwrap.fill(
        body,
        max(width, len(head) + 30),
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_on_hyphens=False,
    )


def needs_text(required: Requirements) -> str:
    """Needs as a reader would say them: `1 GPU, sm_90, cublas_v2.h`."""
    words = [counted(required.gpus, "GPU")] * bool(required.gpus)
    words += [f"sm_{required.sm}"] * bool(required.sm) + list(required.targets)
    words += [f"{required.memory_gib:g} GiB"] * bool(required.memory_gib)
    words += [f"{required.host_memory_gib:g} GiB host"] * bool(required.host_memory_gib)
    words += [f"{required.cores} cores"] * (required.cores > 1)
    words += [f"{required.numa_nodes} NUMA nodes"] * (required.numa_nodes > 1)
    words += ["O_DIRECT"] * required.direct_io + ["huge pages"] * required.huge_pages
    return ", ".join([*words, *required.modules, *required.tools, *required.headers])


def print_targets(root: Path, words: Sequence[str]) -> None:
    """Show what words name, the chapters if there are none. Raises TargetError for a word that names nothing."""
    pairs, targets = survey(root, words)
    select(pairs, targets)  # all of them exist, before any is shown
    places = homes(root, map(str, targets))
    if not words:
        _print_chapters(root, pairs)
    for target in targets:
        if target.pair is None and places[target.chapter].is_dir():
            here = [pair for pair in pairs if pair.chapter == target.chapter]
            _print_chapter(target, places[target.chapter], here)
    for pair in select(pairs, [target for target in targets if target.pair]):
        _print_pair(pair)


def _print_chapters(root: Path, pairs: Sequence[Pair]) -> None:
    for chapter in CHAPTERS:
        if (root / chapter).is_dir():
            count = sum(pair.chapter == chapter for pair in pairs)
            title, _ = _readme(root / chapter)
            print(hanging(f"{chapter}  {count or 'no':>2} pair{'s' * (count != 1):<1}  ", title or "no README.md"))
    print("\n`benchmark_cli show ch07` shows a chapter's question and its pairs.")


def _print_chapter(target: Target, folder: Path, pairs: Sequence[Pair]) -> None:
    title, question = _readme(folder)
    print(f"{target.chapter}  {title}\n")
    if question:
        print(hanging("", question), end="\n\n")
    for pair in pairs:
        print(clean(pair.key))
        sides = [variant for variant in pair.variants if variant.label in ("baseline", "optimized")]
        for side in sides:
            print(hanging(f"  {side.label:<9}  ", clean(side.sentence)))
        if others := ", ".join(clean(variant.label) for variant in pair.variants if variant not in sides):
            print(hanging("  and        ", others))
        print()
    example = clean(f"{target}:{pairs[0].name}") if pairs else target.chapter
    told = f"{target.chapter}/README.md explains them, " * (folder / "README.md").is_file()
    told += f"`benchmark_cli show {example}` shows the sources, `benchmark_cli run {example}` measures."
    print(hanging("", told))


def _readme(folder: Path) -> tuple[str, str]:
    """The title of a chapter's README, without the number, and its first paragraph that asks something."""
    path = folder / "README.md"
    if not path.is_file():
        return "", ""
    first, *paragraphs = path.read_text(errors="replace").split("\n\n")
    asks = next((text for text in paragraphs if "?" in text), "")
    return clean(first.lstrip("# ").split(": ", 1)[-1]), clean(asks.replace("*", ""))


def _print_pair(pair: Pair) -> None:
    """The baseline beside each rung where there is room: Python first, then the .cu files where there are any."""
    from rich.columns import Columns
    from rich.text import Text

    console, baseline = wide_console(), pair.baseline
    others = [variant for variant in pair.variants if variant is not baseline]
    rows = [[variant] for variant in pair.variants]
    if baseline and others and console.width >= 2 * LEAST_COLUMNS:
        rows = [[baseline, other] for other in others]
    for sides in rows:
        console.rule(Text(clean(f"{pair.key}: {' | '.join(side.label for side in sides)}")))
        for side in sides:
            console.print(Text(clean(f"{side.label}: {side.sentence}")))
        width = console.width // len(sides) - 1
        for paths in ([side.path for side in sides], [side.path.with_suffix(".cu") for side in sides]):
            if panels := [_panel(path, width) for path in paths if path.exists()]:
                console.print(Columns(panels, padding=0))


def _panel(path: Path, width: int) -> "Panel":
    from rich.panel import Panel
    from rich.syntax import Syntax
    from rich.text import Text

    language = "cuda" if path.suffix == ".cu" else "python"
    code = Syntax(re.sub(r"[^\S\n]+$", "", path.read_text(), flags=re.MULTILINE), language, word_wrap=True)
    return Panel(code, title=Text(clean(f"{path.parent.name}/{path.name}")), width=width)
