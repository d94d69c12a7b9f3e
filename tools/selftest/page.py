"""docs/measurement_evidence.md: what selftests on named GPUs have shown. Every figure on it comes from their files.

`publish` merges selftests into docs/results/<gpu>/selftest.json, of which the page is a function.
"""

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import Field

from common.python.base.hardware import file_name
from common.python.base.journal import write
from common.python.base.results import Model
from common.python.regress.expectations import origin
from common.python.report.artifacts import read_model
from common.python.report.markdown import escaped, replace_between_markers
from tools.selftest.aa import promises
from tools.selftest.experiments import REPORT
from tools.selftest.models import NAMES, Name, Promise, Report, Sessions
from tools.selftest.plots import plot

PAGE = Path("docs") / "measurement_evidence.md"
RESULTS = Path("docs") / "results"
TITLES: dict[Name, str] = {
    "aa": "1. A variant against itself",
    "truth": "2. Known truth",
    "drift": "3. Drift",
    "others": "4. Against what people use today",
    "cheats": "5. Cheats",
    "cost": "6. What it costs",
    "repeat": "7. Repeatability",
}
QUESTIONS: dict[Name, str] = {
    "aa": "Sessions of ten pairs, each against itself. Every difference that is found is false.",
    "truth": "A kernel that waits a known time, an empty step, and slowdowns that were planted in a kernel.",
    "drift": "The card is heated and rested between blocks by a load of matrix products. The samples are read twice: "
    "as they were interleaved, and as if A had been measured before B.",
    "others": "The same closures in the same process, and as many seconds, with preparing, warming up and sampling in "
    "them and only the proofs left out: both sides are equal, so the ratio is 1. This harness prepares anew in every "
    "round, and times its control too.",
    "cheats": "Variants that cheat must be refused, and honest ones accepted: those beside the cheats, and those of as "
    "many pairs of the chapters as a note says. Peers are among them where the pair's cost is measured below.",
    "cost": "Seconds a pair, by phase.",
    "repeat": "The same pairs several times over; peers take part only in runs that serve the fifth or the sixth, too.",
}


class Part(Model):
    """One experiment as one selftest ran it."""

    measured: str = Field(description="UTC")
    commit: str | None
    dirty: bool | None
    device: str
    form: str
    seconds: float
    promises: list[Promise]
    failed: str | None = None
    cut_off: bool = Field(default=False, description="the process was ended before the experiment was done")
    pooled: list[str] = Field(default=[], description="of A/A sessions of several selftests: the commit of each")


class Evidence(Model):
    """The latest of every experiment on one GPU."""

    schema_version: int = 1
    gpu: str
    parts: dict[Name, Part] = Field(default={})


def publish(runs: Sequence[Path], root: Path) -> Path:
    """Merge selftests, by the folders that they named at their end, into the evidence and write the page anew.

    A later one replaces an earlier one's experiments, but A/A sessions of all `runs` on one kind of GPU are pooled:
    each is an experiment by itself, and several GPUs side by side take them sooner.

    Raises ValueError, in one line, for what is no selftest's folder, was measured on a CPU or is not to be pooled.
    """
    reports = [(folder, _report(folder, root)) for folder in runs]  # all before `root` differs from its commit
    pooled = {place: pool(folders, root) for place, folders in _by_place(runs, root).items()}
    if on_cpu := [folder for folder, report in reports if report.device == "cpu"]:
        raise ValueError(f"{on_cpu[0]} was measured on a CPU: the page is about GPUs")
    for folder, report in reports:
        place = root / RESULTS / file_name(report.device)
        kept = place / REPORT
        evidence = read_model(kept, Evidence) if kept.exists() else Evidence(gpu=report.device)
        for part in parts_of(report):
            evidence.parts |= part
        write(kept, evidence.model_dump_json(indent=1))
        for experiment in NAMES:
            if (picture := folder / experiment / "plot.svg").is_file():
                shutil.copy(picture, place / f"selftest_{experiment}.svg")
    for place, (part_of_all, found) in pooled.items():
        evidence = read_model(place / REPORT, Evidence)
        evidence.parts["aa"] = part_of_all
        write(place / REPORT, evidence.model_dump_json(indent=1))
        write(place / "selftest_aa.svg", plot(found))
    page = root / PAGE
    write(page, current(page.read_text(), root))
    return page


def _report(folder: Path, root: Path) -> Report:
    """What a selftest left, of the commit at `root` if that has the very sources that it ran."""
    report = read_model(folder / REPORT, Report)
    commit, dirty = origin(report.manifest, root)
    about = report.manifest.model_copy(update={"git_commit": commit, "git_dirty": dirty})
    return report.model_copy(update={"manifest": about})


def _by_place(runs: Sequence[Path], root: Path) -> dict[Path, list[Path]]:
    """The selftests with A/A sessions, each once, where one kind of GPU has several."""
    places: dict[Path, list[Path]] = {}
    forms: dict[Path, set[str]] = {}
    for folder in dict.fromkeys(folder.resolve() for folder in runs):
        report = read_model(folder / REPORT, Report)
        if "aa" in report.seconds and (folder / "aa" / "aa.json").is_file():
            place = root / RESULTS / file_name(report.device)
            places.setdefault(place, []).append(folder)
            forms.setdefault(place, set()).add(report.form)
    if any(len(of_one) > 1 for of_one in forms.values()):
        raise ValueError("A/A sessions of the quick and of the full form are not pooled: publish them one by one")
    return {place: folders for place, folders in places.items() if len(folders) > 1}


def pool(folders: Sequence[Path], root: Path) -> tuple[Part, Sessions]:
    """The A/A sessions of several selftests, judged together; the part is otherwise that of the last."""
    reports = [_report(folder, root) for folder in folders]
    sessions = [read_model(folder / "aa" / "aa.json", Sessions).sessions for folder in folders]
    found = Sessions(sessions=[session for of_one in sessions for session in of_one])
    part = next(parts["aa"] for parts in parts_of(reports[-1]) if "aa" in parts)
    told = {
        "promises": promises(found),
        "seconds": sum(report.seconds["aa"] for report in reports),
        "dirty": any(report.manifest.git_dirty for report in reports),
        "failed": next((report.failed["aa"] for report in reports if "aa" in report.failed), None),
        "cut_off": any(report.at_work == "aa" for report in reports),
        "pooled": [report.manifest.git_commit or "unknown" for report in reports],
    }
    return part.model_copy(update=told), found


def parts_of(report: Report) -> list[dict[Name, Part]]:
    """The experiments of a selftest that have a result."""
    about = report.manifest
    return [
        {
            name: Part(
                measured=about.started,
                commit=about.git_commit,
                dirty=about.git_dirty,
                device=report.device,
                form=report.form,
                seconds=report.seconds[name],
                promises=[promise for promise in report.promises if promise.experiment == name],
                failed=report.failed.get(name),
                cut_off=report.at_work == name,
            )
        }
        for name in NAMES
        if name in report.seconds
    ]


def current(text: str, root: Path) -> str:
    """The page with its sections made from what is stored. Raises ValueError without its markers."""
    stored = {path.parent.name: read_model(path, Evidence) for path in sorted((root / RESULTS).glob(f"*/{REPORT}"))}
    parts = [_overview(stored)] if stored else []
    return replace_between_markers(text, "\n\n".join([*parts, *(_section(name, stored) for name in NAMES)]))


def _overview(stored: Mapping[str, Evidence]) -> str:
    """How many promises of each experiment each GPU keeps, and as of which commit."""
    rows = [["Promises kept", *(escaped(evidence.gpu) for evidence in stored.values())], ["---"] * (len(stored) + 1)]
    for name in NAMES:
        rows.append([TITLES[name], *(_kept(evidence.parts.get(name)) for evidence in stored.values())])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _kept(part: Part | None) -> str:
    if part is None:
        return "not measured"
    of, kept = len(part.promises), sum(promise.standing == "kept" for promise in part.promises)
    if part.failed or part.cut_off:
        told = "failed" if part.failed else "cut off"
    else:
        told = f"all {of}" if 0 < of == kept else f"**{kept} of {of}**"
    return f"{told} ({part.commit[:7] if part.commit else 'commit unknown'})"


def _section(name: Name, stored: Mapping[str, Evidence]) -> str:
    parts = {place: evidence.parts[name] for place, evidence in stored.items() if name in evidence.parts}
    told = [_part(name, place, part) for place, part in parts.items()] or ["Not yet measured."]
    command = f"`benchmark_cli selftest --full --only {name}`"
    return "\n\n".join([f"## {TITLES[name]}", QUESTIONS[name], f"Command: {command}", *told])


def _part(name: Name, place: str, part: Part) -> str:
    commit = f"commit {part.commit[:12]}" if part.commit else "commit unknown"
    tree = ", with changes" if part.dirty else ""
    lines = [f"{escaped(part.device)}, {commit}{tree}, {part.measured}, {part.form} form, {part.seconds:.0f} s."]
    if part.pooled:
        counts = Counter(commit[:12] for commit in part.pooled)
        told = ", ".join(f"{count} of commit {commit}" for commit, count in counts.items())
        lines = [f"{escaped(part.device)}, {len(part.pooled)} selftests pooled: {told}{tree}; {part.form} form,"]
        lines.append(f"{part.seconds:.0f} s in all.")
    if part.cut_off:
        lines.append("It was cut off: this is what it had found by then.")
    if part.failed:
        return f"{lines[0]} The experiment failed: {escaped(part.failed)}"
    table = ["| promise | measured | bound | kept |", "| --- | --- | --- | --- |"]
    table += [
        "| " + " | ".join(map(escaped, (p.promise, p.measured, p.bound, p.standing))) + " |" for p in part.promises
    ]
    notes = [f"- {escaped(p.promise)}: {escaped(p.note)}" for p in part.promises if p.note]
    image = f"![{TITLES[name]}](results/{place}/selftest_{name}.svg)"
    return "\n\n".join(filter(None, (" ".join(lines), "\n".join(table), "\n".join(notes), image)))
