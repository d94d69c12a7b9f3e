"""The guide says what the code says, where it is made from it: constants, modules and fields of results."""

import ast
import re
from pathlib import Path

import pytest

from tools.documentation import harness_guide
from tools.documentation.harness_guide import GUIDE, ROOT, constants, current, layers, models, module_map, schema

UNKEPT = {"Peaks"}  # arithmetic is done with it; what is kept in peaks.json is a Survey


def test_the_generated_parts_are_current() -> None:
    text = (ROOT / GUIDE).read_text()
    assert text == current(text, ROOT), "run `python -m tools.documentation.harness_guide`"


def test_every_module_is_named_once_with_what_it_is_for() -> None:
    modules = sorted(file.stem for file in ROOT.glob("common/python/*.py") if file.stem != "__init__")
    text = module_map(ROOT)
    told = re.findall(r"^\| \[(\w+)\]\(\.\./common/python/\1\.py\) \| (?:workers)? \| (.+) \|$", text, re.M)
    assert sorted(name for name, _ in told) == modules
    assert all(len(said.split()) > 4 for _, said in told)
    assert "[proof](../common/python/proof.py) | workers |" in text
    assert "[runner](../common/python/runner.py) |  |" in text
    assert next(iter(layers(ROOT))) == "facts"
    assert text.startswith("### story: ")  # which is read first


def test_every_model_that_is_written_is_described_with_every_field() -> None:
    declared = {
        node.name
        for file in ROOT.glob("common/python/*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "Model" for base in node.bases)
    }
    described = {model.__name__ for model in models()}
    assert declared - described == UNKEPT
    text = schema()
    for model in models():
        part = text.split(f"\n### {model.__name__}\n")[1].split("\n### ")[0]
        assert re.findall(r"^\| `(\w+)` \|", part, re.M) == [name for name, _, _ in harness_guide.fields(model)]
    assert "| `verdict` | `faster`, `same`, `slower`" in text
    assert "| `control` | [Interval](#interval) or null | the baseline against a second preparation of itself |" in text
    assert "| `blocks` | list of [Block](#block) |" in text


def test_constants_are_read_from_the_code_and_one_that_is_gone_is_an_error(tmp_path: Path) -> None:
    place = tmp_path / "common" / "python"
    place.mkdir(parents=True)
    for module in {module for module, _, _ in harness_guide.CONSTANTS}:
        (place / f"{module}.py").write_text((ROOT / "common" / "python" / f"{module}.py").read_text())
    schedule = place / "schedule.py"
    schedule.write_text(schedule.read_text().replace("= 8, 3, 16", "= 9, 3, 17"))
    for line in ("| `schedule.ROUNDS` | 9 |", "| `schedule.FEWEST_ROUNDS` | 3 |", "| `schedule.MOST_ROUNDS` | 17 |"):
        assert line in constants(tmp_path)
    schedule.write_text(schedule.read_text().replace("PRECISE =", "NARROW ="))
    with pytest.raises(ValueError, match="gives nothing to PRECISE"):
        constants(tmp_path)
