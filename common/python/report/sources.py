"""A pair's sources side by side, as `show` prints them: the baseline left, the mechanism above."""

import re
from pathlib import Path

from rich.columns import Columns
from rich.panel import Panel
from rich.syntax import Syntax
from rich.text import Text

from common.python.base.text import clean, wide_console
from common.python.corpus.discovery import Pair, Variant

LEAST_COLUMNS = 60  # of a source beside another; on a narrower terminal they stand one below the other


def print_pair(pair: Pair) -> None:
    """The baseline beside each rung where there is room: Python first, then the .cu files where there are any."""
    console = wide_console()
    baseline = pair.baseline
    others = [variant for variant in pair.variants if variant is not baseline]
    rows = [[variant] for variant in pair.variants]
    if baseline and others and console.width >= 2 * LEAST_COLUMNS:
        rows = [[baseline, other] for other in others]
    for sides in rows:
        console.rule(Text(clean(f"{pair.key}: {' | '.join(side.label for side in sides)}")))
        for side in sides:
            console.print(Text(clean(f"{side.label}: {side.sentence}")))
        width = console.width // len(sides) - 1
        console.print(Columns([_panel(side, side.path, width) for side in sides], padding=0))
        sources = [(side, side.path.with_suffix(".cu")) for side in sides if side.path.with_suffix(".cu").exists()]
        if sources:
            console.print(Columns([_panel(side, path, width) for side, path in sources], padding=0))


def _panel(variant: Variant, path: Path, width: int) -> Panel:
    language = "cuda" if path.suffix == ".cu" else "python"
    code = Syntax(re.sub(r"[^\S\n]+$", "", path.read_text(), flags=re.MULTILINE), language, word_wrap=True)
    return Panel(code, title=Text(clean(f"{path.parent.name}/{path.name}")), width=width)
