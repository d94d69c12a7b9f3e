"""What `show` prints: the chapters there are, a chapter's question and its pairs, or a pair's sources."""

from collections.abc import Sequence
from pathlib import Path

from common.python.base.text import clean, hanging
from common.python.corpus.discovery import Pair, find_pairs, read_targets, select
from common.python.corpus.targets import CHAPTERS
from common.python.report.sources import print_pair


def print_targets(root: Path, words: Sequence[str]) -> None:
    """Show what words name, the chapters if there are none. Raises TargetError for a word that names nothing."""
    pairs = find_pairs(root)
    targets = read_targets(words, pairs)
    select(pairs, targets)  # all of them exist, before any is shown
    if not words:
        _print_chapters(root, pairs)
    for target in targets:
        if target.pair is None and (root / target.chapter).is_dir():
            _print_chapter(root, target.chapter, [pair for pair in pairs if pair.chapter == target.chapter])
    for pair in select(pairs, [target for target in targets if target.pair]):
        print_pair(pair)


def _print_chapters(root: Path, pairs: Sequence[Pair]) -> None:
    for chapter in CHAPTERS:
        if (root / chapter).is_dir():
            count = sum(pair.chapter == chapter for pair in pairs)
            title, _ = _readme(root, chapter)
            print(hanging(f"{chapter}  {count or 'no':>2} pair{'s' * (count != 1):<1}  ", title or "no README.md"))
    print("\n`benchmark_cli show ch07` shows a chapter's question and its pairs.")


def _print_chapter(root: Path, chapter: str, pairs: Sequence[Pair]) -> None:
    title, question = _readme(root, chapter)
    print(f"{chapter}  {title}\n")
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
    example = clean(pairs[0].key) if pairs else chapter
    said = f"{chapter}/README.md explains them, `benchmark_cli show {example}` shows the sources, "
    print(hanging("", f"{said}`benchmark_cli run {example}` measures."))


def _readme(root: Path, chapter: str) -> tuple[str, str]:
    """The title of a chapter's README, without the number, and its first paragraph that asks something."""
    path = root / chapter / "README.md"
    if not path.is_file():
        return "", ""
    first, *paragraphs = path.read_text(errors="replace").split("\n\n")
    asks = next((text for text in paragraphs if "?" in text), "")
    return clean(first.lstrip("# ").split(": ", 1)[-1]), clean(asks.replace("*", ""))
