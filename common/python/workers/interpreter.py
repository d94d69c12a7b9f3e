"""Workers in another Python, with another torch or Triton: `run ch07:transpose --against-python venv/bin/python`.

It imports the harness and the pairs of this one, and all else from its own environment: multiprocessing would hand it
this one's sys.path, and objects that another version of Python may not read.
"""

import contextlib
import json
import subprocess
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakSet

from common.python.base.toolkit import ROOT

BEGIN = """
import importlib, json, os, sys
from importlib.machinery import PathFinder

class Harness:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return PathFinder.find_spec(name, [sys.argv[1]]) if name in ("common", "benchmark_harness") else None

sys.meta_path.insert(0, Harness)
sys.path[:] = [place for place in sys.path if place]  # as Python's -P

from multiprocessing.connection import Connection
from common.python.workers import process
process._main(Connection(int(sys.argv[2])), *json.loads(sys.argv[3]))
"""


class OtherPython(subprocess.Popen[bytes]):
    """A worker's process in another Python, with the methods of multiprocessing's that a Worker calls."""

    living: ClassVar[WeakSet["OtherPython"]] = WeakSet()  # those that somebody holds, dead ones included

    def __init__(self, python: str, connection: int, log: Path, arguments: tuple[Any, ...]) -> None:
        command = [python, "-c", BEGIN, str(ROOT), str(connection), json.dumps(arguments)]
        with log.open("ab") as said:
            super().__init__(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, pass_fds=[connection])
        self.living.add(self)

    def join(self, limit_s: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(limit_s)

    @property
    def exitcode(self) -> int | None:
        return self.poll()
