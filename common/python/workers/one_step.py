"""Step variants of pairs in this process: for profilers and sanitizers, which must start the process they watch.

    python -m common.python.workers.one_step '{"root": ..., "baseline": "ch07.baseline_transpose", ...}' ...

Nothing is flushed, so a step finds in the caches what was left there. Exit code 1 when a variant could not be stepped.
"""

import gc
import json
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from common.python.profile.nsight import mark
from common.python.proof.preparation import settle
from common.python.workers.commands import Commands


def one_step(asked: dict[str, Any], scratch: Path) -> dict[str, str]:
    """Prepare each variant, which steps it once; a `marked` one is warmed, then stepped in an NVTX range.

    `asked` is as `step_command` writes it. What failed, by variant; raises what the workload or a second step raises.
    """
    bench = Commands(Path(asked["root"]), scratch, asked, lambda who, what: print(f"{who}: {what}", flush=True))
    failures: dict[str, str] = bench.load(asked["baseline"], asked["modules"], asked["size"])["failures"]
    failures |= bench.prepare([name for name in asked["modules"] if name not in failures], asked["size"])["failures"]
    for name, variant in bench.prep.variants.items() if asked["marked"] else ():
        variant.step()
        settle(bench.device)
        with torch.cuda.nvtx.range(mark(name)):
            variant.step()
            settle(bench.device)  # its work ends inside the range
    return failures


def main() -> int:
    code = 0
    for asked in map(json.loads, sys.argv[1:]):
        signal.alarm(asked["limit_s"])  # ends this process even if its parent was killed
        gc.unfreeze()  # what `proof.preparation.free` froze of the pair before holds that pair's buffers
        with tempfile.TemporaryDirectory(prefix="one-step-") as scratch:
            try:
                failures = one_step(asked, Path(scratch))
            except Exception as error:  # the next pair may work
                failures = dict.fromkeys(asked["modules"], f"{type(error).__name__}: {error}")
        for name, reason in failures.items():
            print(f"{name}: {reason}", flush=True)
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
