"""A run as one page that opens from disk: no network, no script, and foreign text is always escaped."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from hashlib import sha256
from pathlib import Path

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from common.python.base.results import PairResult, VariantResult
from common.python.base.text import clean, printable
from common.python.corpus.targets import VARIANT, homes
from common.python.performance_targets import peak_text
from common.python.report.artifacts import Run
from common.python.report.charts import PALETTE, gain_chart, on_roofline, roofline_chart, sample_chart
from common.python.report.markdown import pair_facts, sections
from common.python.report.rows import COLUMNS, footers, on_cpu, rows, suite_title, trusted
from common.python.stats.verdict import headline_row

CHANGED = "this file has changed since the run, so its text is not shown"


@dataclass(frozen=True)
class Panel:
    """A source file: its lines, each with whether the file beside it lacks it; or why they are not shown."""

    file: str
    lines: Sequence[tuple[str, bool]] = ()
    withheld: str = ""


def page(run: Run, root: Path) -> str:
    """The whole report. `root` is the checkout whose sources are shown, where they are still those of the run."""
    pairs, about = run.summary.pairs, run.summary.manifest
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    measured = [trusted(result, row) and row.speedup for result in pairs for row in result.variants]
    return environment.get_template("report.html").render(
        palette=Markup(PALETTE),
        summary=run.summary,
        about=about,
        machine=about.machine,
        devices=sorted({result.device for result in pairs if result.device}),
        title=suite_title(pairs),
        columns=COLUMNS,
        rows=rows,
        on_cpu=on_cpu,
        loud=any(map(on_cpu, pairs)),
        footers=footers(pairs),
        gains=gain_chart(pairs) if any(measured) else None,
        roofline=roofline_chart(pairs, run.peaks) if run.peaks else None,
        peaks=run.peaks,
        peak_text=peak_text,
        off_roofline=[result.key for result in pairs if not on_roofline(result, run.peaks)],
        facts=_facts("", about.model_dump(mode="json", exclude={"schema_version", "sources"})),
        sections=sections,
        pair_facts=pair_facts,
        sample_chart=sample_chart,
        sources=lambda result: _sources(result, about.sources, homes(root, about.targets)),
    )


def _shown(value: object) -> object:
    """Text line by line without characters that would turn its direction or move a cursor; Markup as it is."""
    if isinstance(value, Markup):
        return value
    return "\n".join(printable(line.expandtabs(4)) for line in str(value).split("\n"))


def _facts(name: str, value: object) -> list[tuple[str, object]]:
    """What the manifest holds, a line for each value: `machine.gpus.0.name`, `versions.torch`; null is left out."""
    if isinstance(value, dict):
        return [fact for key, inner in value.items() for fact in _facts(f"{name}.{key}".lstrip("."), inner)]
    if isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        return _facts(name, dict(enumerate(value)))
    if isinstance(value, list):
        value = " ".join(map(str, value))
    if isinstance(value, bool):
        value = "yes" if value else "no"
    return [] if value is None else [(name, value)]


def _sources(
    result: PairResult, digests: Mapping[str, str], places: Mapping[str, Path]
) -> list[tuple[str, list[list[Panel]]]]:
    """The baseline beside the headline, then beside each other variant: a title, and the panels by kind of file."""
    baseline, own = next((row for row in result.variants if row.role == "baseline"), None), headline_row(result)
    others = sorted((row for row in result.variants if row is not baseline), key=lambda row: row is not own)
    sides = [[baseline, other] for other in others] if baseline else [[other] for other in others]
    if baseline and not others:
        sides = [[baseline]]
    folder = places.get(result.chapter)
    return [(" | ".join(clean(row.label) for row in side), _panels(side, digests, folder)) for side in sides]


def _panels(side: Sequence[VariantResult], digests: Mapping[str, str], folder: Path | None) -> list[list[Panel]]:
    """The Python files of variants beside each other, then the .cu files that the run had."""
    python = [_panel(row.file, digests, folder) for row in side]
    names = [row.file.removesuffix(".py") + ".cu" for row in side]
    cuda = [_panel(name, digests, folder) for name in names if _recorded(name, digests, folder)]
    return [_marked(panels) for panels in (python, cuda) if panels]


def _recorded(name: str, digests: Mapping[str, str], folder: Path | None) -> str | None:
    """The manifest's digest of a file, which it names from the root of the project or, elsewhere, in full."""
    return digests.get(name) or digests.get(str((folder / Path(name).name).resolve())) if folder else None


def _panel(name: str, digests: Mapping[str, str], folder: Path | None) -> Panel:
    path, recorded = (folder or Path()).resolve() / Path(name).name, _recorded(name, digests, folder)
    if recorded is None or path.is_symlink() or not VARIANT.fullmatch(path.stem):
        return Panel(name, withheld="the run does not say what was in this file")
    if not path.is_file():
        return Panel(name, withheld="this file is no longer here")
    content = path.read_bytes()
    if sha256(content).hexdigest() != recorded:
        return Panel(name, withheld=CHANGED)
    return Panel(name, [(line, False) for line in content.decode(errors="replace").splitlines()])


def _marked(panels: list[Panel]) -> list[Panel]:
    """Of two files beside each other, the lines that only one of them has."""
    if len(panels) != 2 or not all(panel.lines for panel in panels):
        return panels
    left, right = ([line for line, _ in panel.lines] for panel in panels)
    blocks = SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks()
    shared = [{block[side] + offset for block in blocks for offset in range(block.size)} for side in (0, 1)]
    return [
        Panel(panel.file, [(line, bool(line.strip()) and at not in common) for at, (line, _) in enumerate(panel.lines)])
        for panel, common in zip(panels, shared)
    ]
