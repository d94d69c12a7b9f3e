"""`show` and `list` are enough to find one's way: chapters, their questions and pairs, whole words in 80 columns."""

import re
import sys
from pathlib import Path

import pytest
from synthetic_run import host, written

from common.python.corpus.discovery import find_pairs
from common.python.report.listing import print_list, print_targets

WORDS = "Each thread of a warp copies one element, and its neighbours in the row stand a whole row apart in the result"
README = """# Chapter 7: memory access

Memory is not moved by the byte.

The chapter's question: *how many bytes
are moved?* That is counted here.

## a_rather_long_name
"""
CUDA = "from common.python.cuda import load_cuda\n"
NAME = "a_rather_long_name"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "80")
    texts = {
        "ch07/README.md": README,
        f"ch07/baseline_{NAME}.py": f'"""{WORDS}."""\n',
        f"ch07/optimized_{NAME}.py": f'"""{WORDS}, no more."""\n{CUDA}',
        f"ch07/optimized_{NAME}__tile.py": f'"""{WORDS}, less."""\n{CUDA}',
        f"ch07/peer_{NAME}__cub.py": f'"""{WORDS}, elsewhere."""\nrequires = needs(sm=80)\n',
        "ch07/baseline_b.py": '"""Rows are copied whole."""\n',
        "ch08/README.md": "# Chapter 8: occupancy\n\nWhy?\n",
        "ch12/baseline_graph.py": '"""Launches, one by one."""\n',
    }
    return written(tmp_path, texts)


def shown(capsys: pytest.CaptureFixture[str], root: Path, *words: str) -> str:
    print_targets(root, words)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    return out


def test_without_a_target_the_chapters_that_there_are(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, root).splitlines()
    assert lines[:3] == ["ch07   2 pairs  memory access", "ch08  no pairs  occupancy", "ch12   1 pair   no README.md"]
    assert "`benchmark_cli show ch07`" in lines[-1]


def test_of_a_chapter_its_question_and_its_pairs(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, root, "ch7")
    asks = "The chapter's question: how many bytes are moved? That is counted here."
    assert out.startswith(f"ch07  memory access\n\n{asks}\n\nch07:")
    assert f"\nch07:{NAME}\n  baseline   PyTorch  Each thread" in out
    assert "\n  tile       CUDA     Each thread" in out
    assert "\nch07:b\n  baseline  PyTorch  Rows are copied whole.\n" in out
    assert "graph" not in out
    assert "`benchmark_cli show ch07:" in out.replace("\n", " ")


@pytest.mark.parametrize(("columns", "heads"), [(80, 1), (130, 3)])
def test_sources_stand_side_by_side_where_there_is_room_and_else_each_once(
    columns: int, heads: int, root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for name, value in (("FORCE_COLOR", "1"), ("COLORTERM", "truecolor"), ("TERM", "xterm-256color")):
        monkeypatch.setenv(name, value)
    print_targets(root, [f"ch07:{NAME}"])
    out = capsys.readouterr().out
    assert ("48;2;59;50;18m" in out) == (columns > 80)  # what only one of two files has is marked
    lines = re.sub(r"\x1b\[[0-9;]*m", "", out).splitlines()
    assert max(map(len, lines)) <= columns
    titles = [line for line in lines if "╭" in line and f"ch07/baseline_{NAME}.py" in line]
    assert len(titles) == heads
    assert all((f"{NAME}__" in title or "optimized" in title) == (columns > 80) for title in titles)
    assert sum("load_cuda" in line for line in lines) == (columns > 80)  # behind the first files only solutions


def test_on_a_terminal_a_list_keeps_names_and_words_whole(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert sys.stdout.isatty()
    print_list([pair for pair in find_pairs(root) if pair.name == NAME], host())
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"ch07:{NAME}"
    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)
    assert lines[1].startswith("  baseline   PyTorch  Each thread of a warp")
    assert lines[2].startswith(" " * len("  baseline   PyTorch  ") + "neighbours")
    assert "  needs: 1 GPU (optimized, tile); sm_80 (cub)" in lines
    assert "  not here: needs 1 GPU, found 0 (optimized, tile, cub)" in lines
    assert " ".join(lines[lines.index("") :]).strip().startswith("1 pair. `benchmark_cli show ch07:transpose` shows")
