"""Run a program in Triton's interpreter, which must be chosen before triton is imported: hence another process."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


EACH = """
import sys

for case in {cases!r}:
    print("with the arguments", *case, file=sys.stderr)
    sys.argv[1:] = map(str, case)
    exec({program!r}, {{"__name__": "__main__"}})
"""


def interpret(program: str, *cases: tuple[object, ...]) -> None:
    """With the arguments of each case. Raises AssertionError, with the end of what it wrote, where one fails."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", EACH.format(program=program, cases=cases)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
