"""<TAB> on the command line offers options and their values, and imports nothing heavy for that."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic_run import ROOT, program

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


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["sh"], ["show"]),
        (["run", "ch07", "--iter"], ["--iterations"]),
        (["new", "ch07:x", "--kind", "t"], ["torch", "triton"]),
        (["run", "ch0"], []),  # bash then completes names of files and folders
    ],
)
def test_the_shell_is_told(words: list[str], offered: list[str], tmp_path: Path) -> None:
    script = program(tmp_path / "benchmark_cli", SCRIPT)
    asked = {"_BENCHMARK_CLI_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(("benchmark_cli", *words))}
    done = subprocess.run(
        [script], capture_output=True, text=True, env={**os.environ, **asked, "COMP_CWORD": str(len(words))}, check=True
    )
    assert (done.stdout.split(), done.stderr) == (offered, "[]\n")
