"""<TAB> on the command line: what is offered, that bash's colons do no harm, and that nothing heavy is imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic_run import ROOT, program, written

from tools.cli.completion import targets

# As the installed script is: its name decides which variable asks for completion.
SCRIPT = f"""#!{sys.executable}
import sys
sys.path.insert(0, {str(ROOT)!r})
sys.argv[0] = "benchmark_cli"
from tools.cli.benchmark_cli import main
try:
    main()
finally:
    foreign = [name for name in ("torch", "triton", "pydantic", "numpy") if name in sys.modules]
    print(foreign, file=sys.stderr)
"""
FILES = ["ch07/baseline_transpose", "ch07/optimized_transpose", "ch07/baseline_two_words", "ch12/baseline_graph"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "ch08").mkdir()
    names = [*FILES, "ch07/__init__", "ch07/baseline_$(touch owned)", "ch07/baseline_two words"]
    return written(tmp_path, {f"{name}.py": "raise SystemExit('a pair is not imported')" for name in names})


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return program(tmp_path / "bin" / "benchmark_cli", SCRIPT)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("", ["ch07", "ch12", "all"]),
        ("ch0", ["ch07"]),
        ("ch08", []),  # it has no pairs
        ("a", ["all"]),
        ("ch07", ["ch07", "ch07:transpose", "ch07:two_words"]),
        ("ch7", ["ch7:transpose", "ch7:two_words"]),
        ("ch07:zz", []),
        ("ch07/opt", ["ch07/optimized_transpose.py"]),
        ("./ch7/b", ["./ch7/baseline_transpose.py", "./ch7/baseline_two_words.py"]),
        ("ch07/", ["ch07/baseline_transpose.py", "ch07/baseline_two_words.py", "ch07/optimized_transpose.py"]),
        ("ch07:transpose/b", []),
        ("../", []),
    ],
)
def test_what_may_follow_is_offered(typed: str, offered: list[str], tree: Path) -> None:
    assert [target for target in targets(tree, typed) if target.startswith(typed)] == offered


def complete(script: Path, *words: str) -> tuple[list[str], str]:
    """What the script offers for the last word, and what it said to stderr."""
    asked = {"_BENCHMARK_CLI_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(("benchmark_cli", *words))}
    done = subprocess.run(
        [script], capture_output=True, text=True, env={**os.environ, **asked, "COMP_CWORD": str(len(words))}, check=True
    )
    return done.stdout.split(), done.stderr


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["show", "ch07", ":", "tr"], ["transpose"]),  # as bash has it, for which a colon begins a word
        (["run", "-t", "ch12", "-t", "ch7", ":", "two"], ["two_words"]),
        (["new", "ch07:x", "--kind", "t"], ["torch", "triton"]),
    ],
)
def test_the_shell_is_told(words: list[str], offered: list[str], script: Path, tree: Path) -> None:
    command, *rest = words
    assert complete(script, command, "--root", str(tree), *rest) == (offered, "[]\n")


def test_bash_completes_a_pair_with_the_script_that_is_installed(script: Path, tree: Path) -> None:
    typed = f"COMP_WORDS=(benchmark_cli show --root {tree} ch07 : tr); COMP_CWORD=6"
    asks = 'eval "$(_BENCHMARK_CLI_COMPLETE=source_bash benchmark_cli 2>/dev/null)"'
    shell = f'{asks}; {typed}; _benchmark_cli_completion benchmark_cli 2>/dev/null; echo "${{COMPREPLY[@]}}"'
    path = f"{script.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", shell], capture_output=True, text=True, env={**os.environ, "PATH": path}, check=True
    )
    assert done.stdout == "transpose\n"
