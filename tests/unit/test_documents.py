"""What the documents name is there: pairs, files, links, options, and the very words of what the tools say."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from common.python.discovery import find_pairs
from common.python.machine import Gpu, Machine
from common.python.nsight import FORBIDDEN, complaint
from common.python.requirements import Requirements, unmet
from tools.documentation import front_page

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
PATHS = re.compile(r"`((?:tests|common|tools|docs|scripts|\.github)/[\w./]+)(?:::\w+)?`")


def section(name: str) -> str:
    return README.split(f"\n## {name}\n")[1].split("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    """The rows of a table, without its head."""
    return [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")][2:]


def test_the_readme_opens_with_its_two_commands() -> None:
    assert README.split("\n\n")[1] == "    make run TARGETS=ch1\n    make test"


def test_the_results_on_the_front_page_are_what_the_chapters_expect() -> None:
    assert front_page.current(README, ROOT) == README
    assert [row[0] for row in rows(section("What an H200 gave"))] == list(front_page.PAIRS)


def test_the_picture_on_the_front_page_has_the_pairs_of_the_one_that_would_be_drawn_now() -> None:
    kept = (ROOT / front_page.PICTURE).read_text()
    assert f"]({front_page.PICTURE})" in README
    named = [set(re.findall(r">([a-z][\w:]*)</text>", text)) for text in (kept, front_page.picture(ROOT) or "")]
    assert named[0] == named[1] != set()


def test_every_pair_of_a_learning_path_exists() -> None:
    paths, there = rows(section("Where to begin")), {pair.key for pair in find_pairs(ROOT)}
    assert [row[0] for row in paths] == [
        *("ten minutes", "an afternoon", "a kernel engineer", "an inference engineer", "a training engineer")
    ]
    for who, named in paths:
        keys = re.findall(r"ch\d\d:\w+", named)
        assert keys, who
        assert set(keys) <= there, f"{who}: {set(keys) - there}"
        assert len(set(keys)) == len(keys), who


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_paths_lead_somewhere(document: Path) -> None:
    text = document.read_text()
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        assert target.startswith("https://") or (document.parent / target).exists(), target
    for path in PATHS.findall(text):
        assert (ROOT / path).exists(), path


def test_every_anchor_is_a_heading() -> None:
    for document in DOCUMENTS:
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)]+)\)", document.read_text()):
            if target.startswith("https://"):
                continue
            other = (document.parent / target).read_text() if target else document.read_text()
            titles = re.findall(r"^#+ (.+)$", other, flags=re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}, anchor


def test_every_test_of_the_threat_model_exists() -> None:
    text = (ROOT / "docs" / "threat_model.md").read_text()
    named = re.findall(r"`(?:[\w/]*?(test_\w+\.py)::)?(test_\w+)`", text)
    written = {file.name: file.read_text() for file in ROOT.glob("tests/*/test_*.py")}
    assert len(named) > 15
    for file, test in named:
        assert f"def {test}(" in written[file or "test_endings.py"], test


def test_every_symptom_is_in_the_tools_own_words() -> None:
    """Between dots, which stand for what varies, each is a piece of a string in the code or what `needs` says."""
    said = [*strings(), (ROOT / "setup.sh").read_text(), *lacking(), complaint(FORBIDDEN, 1) or ""]
    symptoms = [piece for row in rows(section("When something is off")) for piece in re.findall(r"`([^`]+)`", row[0])]
    assert len(symptoms) > 15
    for symptom in symptoms:
        for piece in filter(None, (part.strip() for part in symptom.split("..."))):
            assert any(piece in text for text in said), piece


def strings() -> Iterator[str]:
    """Every string of the harness and its tools, docstrings aside; the fixed parts of an f-string each."""
    for file in (*ROOT.glob("common/python/*.py"), *ROOT.glob("tools/**/*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Expr):
                continue
            for inner in ast.iter_child_nodes(node):
                if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                    yield inner.value


def lacking() -> list[str]:
    gpu = Gpu("an RTX 3060", "GPU-1", 86, 12.0)
    host = Machine("here", "Linux", "a CPU", 2, 8.0, 1, [])
    here = Machine("here", "Linux", "a CPU", 2, 8.0, 1, [gpu])
    wants = Requirements(targets=("sm_90a",), gpus=1), Requirements(modules=("liger_kernel_that_is_not",))
    told = [*unmet(Requirements(gpus=1), host), *unmet(wants[0], here), *unmet(wants[1], here)]
    return [text.removesuffix("_that_is_not") for text in told]


def command_line() -> Any:
    """benchmark_cli as it is really built: a group of commands, each with its options."""
    from tools.cli.benchmark_cli import app

    return typer.main.get_command(app)


def test_every_command_of_the_readme_is_one() -> None:
    shown = set(re.findall(r"^    benchmark_cli ([\w-]+)", section("Commands"), flags=re.MULTILINE))
    assert shown <= set(command_line().commands)
    assert {"run", "list", "show", "verify"} <= shown


def test_every_option_of_the_readme_is_one() -> None:
    """Of benchmark_cli, or of a script at the root or a tool, which name theirs in full."""
    known = {"--help"}
    for command in (group := command_line(), *group.commands.values()):
        known |= {word for option in command.params for word in (*option.opts, *option.secondary_opts)}
    others = [*ROOT.glob("*.sh"), *ROOT.glob("*.py"), ROOT / "tools" / "analysis" / "analyze_expectations.py"]
    text = "".join(file.read_text() for file in others)
    for option in set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", README)) - known:
        parameter = option.removeprefix("--").replace("-", "_")
        assert f'"{option}"' in text or f"{option})" in text or re.search(rf"^    {parameter}: ", text, re.M), option
