"""The command line of the tools beside `benchmark_cli`: one line and exit code 2 for what is wrong."""

import argparse
from typing import NoReturn

from common.python.base.text import clean

USAGE = 2


class Arguments(argparse.ArgumentParser):
    """argparse that shows a module's text as it is written, and says in one line what was wrong."""

    def __init__(self, prog: str, text: str | None) -> None:
        super().__init__(prog, description=text, formatter_class=argparse.RawDescriptionHelpFormatter)

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog.rpartition('/')[2]}: {clean(message)}\n")
