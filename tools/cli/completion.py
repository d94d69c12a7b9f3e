"""What the shell offers for a target when <TAB> is pressed, once typer's `--install-completion` has set that up.

File names alone decide: no pair is read or imported.
"""

import os
import re
from pathlib import Path

import typer

from common.python.base.toolkit import ROOT
from common.python.corpus.targets import CHAPTER, CHAPTERS, pair_name


def complete_target(ctx: typer.Context, incomplete: str) -> list[str]:
    """Chapters, the pairs of one, or its files, as they follow from what is typed. Typer drops the unfit."""
    words, at = _bash_words()
    cut = "".join(words[at - 2 : at]) if words[at - 1 : at] == [":"] else ""  # bash knows `ch07:` and asks for the rest
    return [target[len(cut) :] for target in targets(_root(ctx), cut + incomplete)]


def complete_chapter(ctx: typer.Context, incomplete: str) -> list[str]:
    """The chapters that a new pair may be in."""
    return [chapter for chapter in CHAPTERS if (_root(ctx) / chapter).is_dir()]


def _root(ctx: typer.Context) -> Path:
    return Path(ctx.params.get("root") or ROOT)


def targets(root: Path, typed: str) -> list[str]:
    """The targets under `root` that may be meant, their chapter spelled as it is typed: ch7:transpose."""
    folder, slash, _ = typed.rpartition("/")
    if slash:
        return [f"{folder}/{path.name}" for path in _variants(root, folder.rpartition("/")[2], "[bop]*")]
    chapter = typed.partition(":")[0]
    names = dict.fromkeys(pair_name(path.stem) for path in _variants(root, chapter, "baseline"))
    chapters = [known for known in CHAPTERS if _variants(root, known, "baseline")]
    return [*chapters, "all", *(f"{chapter}:{name}" for name in names)]


def _variants(root: Path, chapter: str, role: str) -> list[Path]:
    if not (named := CHAPTER.fullmatch(chapter)):
        return []
    found = sorted((root / f"ch{int(named[1]):02}").glob(f"{role}_*.py"))
    return [path for path in found if re.fullmatch(r"\w+", path.stem)]  # no other is a target, nor fit for a shell


def step_over_colon() -> None:
    """For bash a colon is a word. Where the cursor stands on that of `ch07:`, complete the empty word that follows."""
    words, at = _bash_words()
    if words[at : at + 1] == [":"]:
        os.environ["COMP_CWORD"] = str(at + 1)


def _bash_words() -> tuple[list[str], int]:
    """The words on bash's command line and which of them is to be completed; none where bash does not ask."""
    if os.environ.get("_BENCHMARK_CLI_COMPLETE") != "complete_bash":
        return [], 0
    return os.environ["COMP_WORDS"].split(), int(os.environ["COMP_CWORD"])
