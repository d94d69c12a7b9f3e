"""What documents name is there: pairs, files, links, commands, options, and the very words of what the tools say."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
import torch
import typer
from synthetic_run import ROOT, host, written
from test_rules import RULES

from common.python.base.machine import Gpu
from common.python.corpus.discovery import find_pairs, pairs_in
from common.python.corpus.targets import Folder
from common.python.profile.nsight import FORBIDDEN, complaint
from common.python.report.markdown import BEGIN, END
from common.python.requirements import Requirements, unmet
from common.python.workload import Draw
from tools.cli.benchmark_cli import app
from tools.documentation import front_page

README = (ROOT / "README.md").read_text()
GUIDE = (ROOT / "docs" / "benchmark_harness_guide.md").read_text()
COMMANDS: dict[str, Any] = typer.main.get_command(app).commands
CHAPTERS = sorted(ROOT.glob("ch??/README.md"))
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *CHAPTERS])
CURRENT = [path for path in DOCUMENTS if not {"results", "research"} & set(path.parts)]  # others tell of their day
MOST_WORDS = {
    "README.md": 1_200,
    "docs/benchmark_harness_guide.md": 4_000,
    "docs/fleet.md": 1_200,
    "docs/measurement_evidence.md": 1_500,
    "docs/threat_model.md": 1_300,
}
READ_FIRST = re.compile(r"\b(read\b.*\b(first|in this order)|take\b.*\bin this order)\b", re.IGNORECASE | re.DOTALL)
TO_COME = re.compile(r"(What is )?[Tt]o come")
PATHS = re.compile(r"`((?:tests|common|tools|docs|scripts|\.github)/[\w./]+)(?:::\w+)?`")


def section(text: str, name: str) -> str:
    return text.split(f"\n## {name}\n")[1].split("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    """The rows of a table, without its head."""
    return [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")][2:]


def test_the_readme_opens_with_its_two_commands() -> None:
    assert README.split("\n\n")[1] == "    make run TARGETS=ch1\n    make test"


def test_the_results_on_the_front_page_are_what_the_chapters_expect() -> None:
    assert front_page.current(README, ROOT) == README
    assert [row[0] for row in rows(section(README, "What an H200 gave"))] == list(front_page.PAIRS)


def test_a_pair_for_other_gpus_alone_says_everywhere_that_it_was_not_run() -> None:
    targets = front_page.compiled_only(ROOT)
    for pair in (pair for pair in find_pairs(ROOT) if pair.key in targets):
        restricted = [one for one in pair.variants if "CUDA" in one.kinds and one.required.targets]
        said = {one.name: f"Compiled for {one.required.targets[0]}, not run" for one in restricted}
        told = re.split(r"^## ", (ROOT / pair.chapter / "README.md").read_text(), flags=re.MULTILINE)
        assert any(part.startswith(pair.name) and all(map(part.count, said.values())) for part in told), pair.key
        assert f"`{pair.name}`" in next(part for part in told if part.startswith("Results\n")).split(END)[1], pair.key
        assert [one.name for one in restricted if said[one.name] not in one.sentence] == []


def test_every_chapter_shows_its_drawing_and_the_chart_of_its_gains() -> None:
    for chapter in CHAPTERS:
        text, name = chapter.read_text(), chapter.parent.name
        assert f"](../docs/pictures/{name}.svg)" in text, name
        assert "prefers-color-scheme: dark" in (ROOT / "docs/pictures" / f"{name}.svg").read_text(), name
        assert f"](../{front_page.PICTURE.with_name(front_page.GAINS.format(name))})" in text, name


def test_the_charts_have_the_pairs_of_those_that_would_be_drawn_now() -> None:
    charts = front_page.charts(ROOT)
    for shown in (front_page.PICTURE, front_page.HEADLINES):
        assert shown in charts
        assert f"]({shown})" in README
    for path, drawn in charts.items():
        kept, now = (re.findall(r"ch\d\d:\w+", text) for text in ((ROOT / path).read_text(), drawn))
        assert kept == now != [], path


def test_every_pair_of_a_learning_path_exists() -> None:
    paths = rows((ROOT / "docs" / "learning_paths.md").read_text())
    there = {pair.key for pair in find_pairs(ROOT)}
    assert len(paths) == 5
    for who, named in paths:
        keys = re.findall(r"ch\d\d:\w+", named)
        assert keys, who
        assert set(keys) <= there, f"{who}: {set(keys) - there}"


def test_the_front_page_leads_to_every_chapter() -> None:
    named = [re.findall(r"\((ch\d\d/README\.md)\)", row[0]) for row in rows(section(README, "Chapters"))]
    assert named == [[f"{chapter.parent.name}/README.md"] for chapter in CHAPTERS]


@pytest.mark.parametrize("name", MOST_WORDS)
def test_a_page_is_short_enough_to_be_read(name: str) -> None:
    written = re.sub(rf"{BEGIN}.*?{END}", "", (ROOT / name).read_text(), flags=re.DOTALL)
    assert len(written.split()) <= MOST_WORDS[name]


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.parent.name)
def test_a_chapter_has_all_of_its_parts(chapter: Path) -> None:
    names = {pair.name for pair in pairs_in(Folder(chapter.parent, chapter.parent.name))}
    text = chapter.read_text()
    opening, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    sections = {re.sub(r"^\d+\. ", "", head): body for head, _, body in (part.partition("\n") for part in parts)}
    first = [paragraph for paragraph in re.split(r"\n\n", opening) if READ_FIRST.search(paragraph)]
    first += [body for head, body in sections.items() if READ_FIRST.search(head)]
    if READ_FIRST.search(text):  # "Take the pairs in this order", and their sections are numbered
        first.append(" ".join(re.findall(r"^## \d+\. (.+)$", text, re.MULTILINE)))
    exercises = re.findall(r"^\d+\. ", sections.get("Exercises", ""), re.MULTILINE)
    later = "".join(body for head, body in sections.items() if TO_COME.fullmatch(head))
    listed = {row[0].strip("`") for row in rows(later)}
    there = {
        "a question before its first section": "?" in opening,
        "a list of what one will be able to do": re.search(r"\bable to( do)?\n\n- ", text),
        "the pairs to read first": any(sum(name in text for name in names) >= min(2, len(names)) for text in first),
        "the results' table, under ## Results": "<!-- results:begin -->" in sections.get("Results", ""),
        **{f"a section for {name}": any(re.match(rf"{name}\b", head) for head in sections) for name in sorted(names)},
        "pitfalls, as a list under ## Pitfalls": re.search(r"^- \S", sections.get("Pitfalls", ""), re.MULTILINE),
        "three exercises or more, and a command that checks them": len(exercises) >= 3
        and "benchmark_cli" in sections["Exercises"],
        "no pair that is there among those to come": not listed & names,
    }
    assert [part for part, found in there.items() if not found] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_paths_lead_somewhere_and_every_anchor_is_a_heading(document: Path) -> None:
    text = document.read_text()
    for target, anchor in re.findall(r"\]\((?!https://)([^)#\s]*)(?:#([^)]+))?\)", text):
        other = document.parent / target if target else document
        assert other.exists(), target
        titles = re.findall(r"^#+ (.+)$", other.read_text(), flags=re.MULTILINE) if anchor else []
        anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
        assert not anchor or anchor in anchors, anchor
    for path in PATHS.findall(text):
        assert (ROOT / path).exists(), path


def test_every_test_of_the_threat_model_exists() -> None:
    text = (ROOT / "docs" / "threat_model.md").read_text()
    named = re.findall(r"`(?:[\w/]*?(test_\w+\.py)::)?(test_\w+)`", text)
    written = {file.name: file.read_text() for file in ROOT.glob("tests/*/test_*.py")}
    assert len(named) > 15
    for file, test in named:
        assert f"def {test}(" in written[file or "test_endings.py"], test


def test_every_symptom_is_in_the_tools_own_words() -> None:
    """Between dots, which stand for what varies, each is a piece of a string in the code or what `needs` says."""
    here = host(Gpu("an RTX 3060", "GPU-1", 86, 12.0))
    wants = Requirements(targets=("sm_90a",), gpus=1), Requirements(modules=("liger_kernel_that_is_not",))
    lacking = [*unmet(Requirements(gpus=1), host()), *unmet(wants[0], here), *unmet(wants[1], here)]
    said = [
        *strings(),
        (ROOT / "setup.sh").read_text(),
        (ROOT / "pyproject.toml").read_text(),
        *(text.removesuffix("_that_is_not") for text in lacking),
        complaint(FORBIDDEN, 1) or "",
    ]
    symptoms = [piece for row in rows(section(GUIDE, "Troubleshooting")) for piece in re.findall(r"`([^`]+)`", row[0])]
    assert len(symptoms) > 15
    for symptom in symptoms:
        for piece in filter(None, (part.strip() for part in symptom.split("..."))):
            assert any(piece in text for text in said), piece


def strings() -> Iterator[str]:
    """Every string of the harness and its tools, docstrings aside; the fixed parts of an f-string each."""
    for file in (*ROOT.glob("common/python/**/*.py"), *ROOT.glob("tools/**/*.py")):
        aside = set[ast.AST]()
        for node in ast.walk(ast.parse(file.read_text())):  # which takes what contains before what is contained
            if isinstance(node, ast.Expr):
                aside.add(node.value)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in aside:
                yield node.value


def options(command: Any) -> set[str]:
    return {"--help", *(word for option in command.params for word in (*option.opts, *option.secondary_opts))}


@pytest.mark.parametrize("document", CURRENT, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_that_a_document_shows_exists_with_its_options(document: Path) -> None:
    for name, words in shown(document.read_text()):
        assert name in COMMANDS, name
        assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", words)) <= options(COMMANDS[name]), words
    for module in re.findall(r"python -m ((?:tools|common)[\w.]+)", document.read_text()):
        assert (ROOT / module.replace(".", "/")).with_suffix(".py").is_file(), module


def shown(text: str) -> list[tuple[str, str]]:
    """Each use of benchmark_cli in code, inside a line or as one of its own: its command, and the words after it."""
    lines = re.findall(r"^ {4,}(.+)$", text, re.MULTILINE)
    uses = [re.search(r"benchmark_cli ([a-z]\S*)(.*)", piece) for piece in [*lines, *re.findall(r"`([^`\n]+)`", text)]]
    return [(use[1], re.split(r" {3,}", use[2])[0]) for use in uses if use]


@pytest.mark.parametrize("text", [README, GUIDE], ids=["README", "guide"])
def test_every_option_that_is_named_is_one(text: str) -> None:
    """Of benchmark_cli, or of a script at the root or a tool, which name theirs in full."""
    known = set.union(*map(options, COMMANDS.values()))
    others = [*ROOT.glob("*.sh"), *ROOT.glob("*.py"), ROOT / "tools" / "analysis" / "analyze_expectations.py"]
    named = "".join(file.read_text() for file in others)
    for option in set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) - known:
        parameter = option.removeprefix("--").replace("-", "_")
        assert f'"{option}"' in named or f"{option})" in named or re.search(rf"^    {parameter}: ", named, re.M), option


def test_the_guides_pair_keeps_the_rules_and_both_sides_give_the_answer(tmp_path: Path) -> None:
    files = re.findall(r"into `(\S+)`:\n\n```python\n(.*?)```", GUIDE, re.DOTALL)  # those that it shows whole
    written(tmp_path, dict(files))
    baseline, optimized = (tmp_path / name for name, _ in files)
    (pair,) = find_pairs(tmp_path)
    assert [breach for rule in RULES for breach in rule(tmp_path)] == []
    assert f"benchmark_cli run {pair.key}" in GUIDE
    given = run_path(str(baseline))
    workload = given["workload"]
    inputs = workload.inputs(Draw(torch.device("cpu"), 1, tmp_path), **workload.sizes["test"])
    optimized.write_text(re.sub(r"from ch07\.\w+ import workload.*", "", optimized.read_text()))
    for prepare in (given["prepare"], run_path(str(optimized))["prepare"]):
        assert torch.equal(prepare(**inputs)(), workload.reference(**inputs))
