"""What a pull request changed, for CI: the pairs to be timed against its base, and what a run of them says.

`targets BASE` prints a target a line, for `run --against BASE`; stderr names the changed pairs that cannot be compared.
`comment RUN` prints the Markdown of a comment. Exit codes: 0 done, 2 usage or unreadable files.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from markupsafe import Markup

from common.python.base import safe_read
from common.python.base.manifest import git
from common.python.base.results import PairResult, Summary
from common.python.base.text import clean, counted
from common.python.build.compilation import files_of
from common.python.corpus.discovery import Pair, find_pairs
from common.python.corpus.targets import TargetError, quoted
from common.python.regress.against import with_refs
from common.python.report.artifacts import followed
from common.python.report.markdown import escaped, table
from common.python.report.rows import blame, interval_text, verdict_text
from common.python.stats.intervals import MARGIN, verdict
from common.python.stats.verdict import OF_MEMORY
from tools.cli.exits import PLAIN, ended

PROGRAM = "pull_request"
MARKER = "<!-- benchmark -->"  # by which gpu.yml finds its comment again
HARNESS = ("common/python/", "tools/", "benchmark_harness/")
# Each pair needs the harness. These take seconds and need different parts of it: a step that is all launches, on the
# host's clock; kernels in CUDA; kernels in Triton; bytes as the goal.
FIXED = ("ch01:cuda_graph", "ch07:transpose", "ch09:softmax", "ch15:paged_kv")
MOST_LINES = 100  # of a list: GitHub takes 65,536 characters in all, and `safe_read` shows 200 of a reason

app = typer.Typer(add_completion=False, **PLAIN)


@app.command()
def targets(base: str) -> None:
    """Print the pairs of the chapters here whose files differ from this commit's; of another harness, a few more."""
    for pair in changed_pairs(Path.cwd(), base):
        try:
            with ExitStack() as stack:
                with_refs([pair], base, stack, lambda line: None)
        except TargetError as error:
            typer.echo(clean(f"{pair.key} is left out: {error}"), err=True)
        else:
            typer.echo(pair.key)


@app.command()
def comment(
    run: Annotated[Path, typer.Argument(help="A run's folder, which need not be there if nothing was measured.")],
    left_out: Annotated[Path | None, typer.Option(help="What `targets` wrote to stderr.")] = None,
) -> None:
    """Print a comment: what is not as it is at the base, what failed, and the smallest loss that would have shown."""
    place = followed(run) / "summary.json"
    summary = safe_read.read_model(place, Summary) if place.is_file() else None
    lines = left_out.read_text().splitlines() if left_out else []
    typer.echo(comment_text(summary, lines, os.environ), nl=False)


def changed_pairs(root: Path, base: str) -> list[Pair]:
    """The pairs that differ from a commit, in what they use of their own, and FIXED ones where the harness does."""
    commit = git(root, "rev-parse", "--verify", "--quiet", f"{base}^{{commit}}")
    told = commit and git(root, "diff", "--name-only", "-z", "--relative", commit)
    if told is None:
        raise ValueError(f"{quoted(base)} is not a commit of {root}")
    names = {name for name in told.split("\0") if name}
    harness = {name for name in names if name.startswith(HARNESS)}
    changed, fixed = {root / name for name in names - harness}, FIXED if harness else ()
    pairs = find_pairs(root) if names else []
    return [pair for pair in pairs if pair.key in fixed or not changed.isdisjoint(files_of(pair))]


def comment_text(summary: Summary | None, left_out: Iterable[str], environment: Mapping[str, str]) -> str:
    """The comment on a run, or on none; in GitHub Actions with a link to the job."""
    ref = f" against {shown(str(summary.manifest.options.get('against')))}" if summary else ""
    parts = [MARKER, f"## Benchmark{ref}", *(told(summary) if summary else ["Nothing was measured."])]
    parts.append(bullets(left_out))
    server, repository, run = (environment.get(f"GITHUB_{name}") for name in ("SERVER_URL", "REPOSITORY", "RUN_ID"))
    parts.append(f"[Report and samples]({server}/{repository}/actions/runs/{run})" if run else "")
    return "\n\n".join(filter(None, parts)) + "\n"


def told(summary: Summary) -> Iterator[str]:
    """What a run says of the variants that it compared with the base, and what it could not compare."""
    pairs = [pair for pair in summary.pairs if pair.status != "failed" and pair.verdict != "invalid"]
    compared = [(pair, row, row.against) for pair in pairs for row in pair.variants]
    known = [(pair, row, found, verdict(found)) for pair, row, found in compared if found]
    lines = [
        [pair.key, row.label, interval_text(found), OF_MEMORY.get(said, said) if pair.goal == "memory" else said]
        for pair, row, found, said in sorted(known, key=lambda one: one[2].ratio)  # the worst first
        if said != "same"
    ]
    if any(pair.on_cpu for pair in summary.pairs):
        yield "**Measured on the CPU, not on a GPU.**"
    if not summary.complete:
        yield "**Incomplete: the run stopped before its last pair.**"
    others = f"{len(lines)} not" if lines else "each"
    sentence = f"{counted(len(known), 'variant')} compared, {others} the same as at the base within {MARGIN:.0%}."
    yield sentence if known else "No variant was compared with the base."
    if lines:
        cells = [[Markup(shown(cell)) for cell in line] for line in lines[:MOST_LINES]]
        yield table(("pair", "variant", "ratio", "verdict"), cells)
        yield "Ratio: time at the base over time here (bytes, where they are the goal), with its 95% interval."
    if known:
        reach = max(found.high / found.ratio for _, _, found, _ in known)  # slower is what ends below 1 - MARGIN
        yield (
            f"The widest interval ends {reach - 1:.1%} above its ratio, so a measured loss of "
            f"{reach / (1 - MARGIN) - 1:.1%} or more would have shown in each variant. Both sides use the `common/` of "
            "this pull request: what it changes there is in no ratio."
        )
    yield bullets([f"{key}: not run: {why}" for key, why in summary.not_run.items()])
    yield bullets(line for pair in summary.pairs for line in not_compared(pair))


def not_compared(pair: PairResult) -> Iterator[str]:
    """Why a pair, or some of its variants, were not compared with the base."""
    if pair.failed:
        yield f"{pair.key}: failed: {blame(pair)}"
        return
    if pair.status != "measured" or (pair.verdict == "too noisy" and not any(row.against for row in pair.variants)):
        yield f"{pair.key}: {verdict_text(pair, pair)}: {pair.reason or 'no reason was recorded'}"
        return
    refs = [row for row in pair.variants if row.role == "ref"]
    for own in (row for row in pair.variants if row.against is None):
        for ref in (ref for ref in refs if ref.name.startswith(f"{own.name}@")):
            wrong = ref if own.sound else own
            yield f"{pair.key} {wrong.label}: {verdict_text(pair, wrong)}: {wrong.reason or 'no reason was recorded'}"


def bullets(lines: Iterable[str]) -> str:
    listed = [f"- {shown(line)}" for line in lines]
    more = len(listed) - MOST_LINES
    return "\n".join(listed[:MOST_LINES] + [f"- and {more} more"] * (more > 0))


def shown(text: str) -> str:
    """Foreign text as GitHub shows it in a comment, where it must call nobody and link to no issue."""
    return re.sub(r"@|#(?=\d)", r"<span>\g<0></span>", escaped(safe_read.shown(text)))


if __name__ == "__main__":
    ended(app, PROGRAM)
