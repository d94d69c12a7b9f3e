"""One marked step of one variant, alone in this process: for profilers, which must start the process they watch.

    python -m common.python.workers.profiled_step '{"root": ..., "baseline": "ch07.baseline_transpose", ...}'

The step is a warm one: the variant is prepared and stepped twice before. Nothing is flushed, so it finds in the caches
what the step before it left there.
"""

import json
import signal
import sys
from pathlib import Path
from typing import Any

import torch

from common.python.profile.nsight import mark
from common.python.proof.preparation import settle
from common.python.workers.commands import Commands


def profiled_step(asked: dict[str, Any]) -> str | None:
    """Step the variant inside an NVTX range; why it could not be, if so.

    `asked` names root, scratch, baseline, module, name, size, seed and reproducible. Raises VariantError when the
    workload does not work.
    """
    name, size = asked["name"], asked["size"]
    settings = {"seed": asked["seed"], "reproducible": asked["reproducible"]}
    scratch = Path(asked["scratch"])
    scratch.mkdir(parents=True, exist_ok=True)
    bench = Commands(Path(asked["root"]), scratch, settings, lambda who, what: print(f"{who}: {what}", flush=True))
    if failures := bench.load(asked["baseline"], {name: asked["module"]}, size)["failures"]:
        return str(failures[name])
    if failures := bench.prepare([name], size)["failures"]:
        return str(failures[name])
    assert bench.prep is not None
    step = bench.prep.variants[name].step
    step()
    settle(bench.device)
    torch.cuda.nvtx.range_push(mark(name))
    step()
    settle(bench.device)  # its work ends inside the range
    torch.cuda.nvtx.range_pop()
    return None


def main() -> int:
    asked = json.loads(sys.argv[1])
    signal.alarm(asked["limit_s"])  # should whoever would stop this process be killed itself
    failure = profiled_step(asked)
    if failure:
        print(failure, flush=True)
    return 1 if failure else 0


if __name__ == "__main__":
    sys.exit(main())
