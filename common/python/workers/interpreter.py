"""Workers in another Python, with another torch or Triton: `run ch07:transpose --against-python venv/bin/python`.

It imports the harness and the pairs of this one, and all else from its own environment: multiprocessing would hand it
this one's sys.path, and objects that another version of Python may not read.
"""

import contextlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakSet

from common.python.base.machine import crowding
from common.python.base.toolkit import ROOT

NEEDED = ("torch", "numpy", "pydantic")
START_LIMIT_S = 120.0
IMPORT = """
import importlib, json, os, sys
from importlib.machinery import PathFinder

class Harness:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return PathFinder.find_spec(name, [sys.argv[1]]) if name in ("common", "benchmark_harness") else None

sys.meta_path.insert(0, Harness)
sys.path[:] = [place for place in sys.path if place]  # as Python's -P
"""
BEGIN = """
from multiprocessing.connection import Connection
from common.python.workers import process
process._main(Connection(int(sys.argv[2])), *json.loads(sys.argv[3]))
"""
ASK = """
said, lacks = {"parent": os.getppid()}, []
for name in json.loads(sys.argv[2]):
    try:
        importlib.import_module(name)
    except Exception as error:
        lacks.append(name)
if not lacks:
    importlib.import_module("common.python.workers.commands")
    from common.python.base.manifest import versions
    said |= {"versions": versions(), "gpu": sys.modules["torch"].cuda.is_available()}
print()
print(json.dumps(said | {"lacks": lacks}))
"""


class OtherPython(subprocess.Popen[bytes]):
    """A worker's process in another Python, with the methods of multiprocessing's that a Worker calls."""

    living: ClassVar[WeakSet["OtherPython"]] = WeakSet()  # those that somebody holds, dead ones included

    def __init__(self, python: str, connection: int, log: Path, arguments: tuple[Any, ...]) -> None:
        command = [python, "-c", IMPORT + BEGIN, str(ROOT), str(connection), json.dumps(arguments)]
        with log.open("ab") as said:
            super().__init__(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, pass_fds=[connection])
        self.living.add(self)

    def join(self, limit_s: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(limit_s)

    @property
    def exitcode(self) -> int | None:
        return self.poll()


def look_into(python: str) -> tuple[str, dict[str, str | None], bool]:
    """The path of a Python, its versions as a manifest has them, and whether its torch sees a GPU.

    Raises ValueError, in one line, where workers cannot be started with it.
    """
    found = shutil.which(python)
    if found is None:
        raise ValueError("is no executable file")
    path, limit_s = os.path.abspath(found), START_LIMIT_S * crowding()
    asked = [path, "-c", IMPORT + ASK, str(ROOT), json.dumps(NEEDED)]
    try:
        done = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit_s, check=False)
        told = json.loads((done.stdout.splitlines() or [b""])[-1]) if done.returncode == 0 else None
    except subprocess.TimeoutExpired:
        raise ValueError(f"does not import torch within {limit_s:.0f} s") from None
    except (OSError, ValueError):
        raise ValueError("is no Python") from None
    if not isinstance(told, dict) or "lacks" not in told:
        last = (done.stderr.decode(errors="replace").strip().splitlines() or ["it says nothing"])[-1]
        raise ValueError(f"cannot import the harness: {last}")
    if lacks := told["lacks"]:
        raise ValueError(f"cannot import {' and '.join(lacks)}: install what is missing in its environment")
    if told["parent"] != os.getpid():
        raise ValueError("starts Python as a process of its own: name that Python itself")
    return path, told["versions"], told["gpu"]
