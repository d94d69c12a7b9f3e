"""Prepare variants at `test` size and step each once, all in this process: for tools that watch a process' kernels.

    python -m tools.testing.one_step ROOT ch07.baseline_transpose ch07.optimized_transpose ...

The first module states the workload; those after it are stepped. This is a round of the harness without its workers,
which compute-sanitizer would have to follow. Exit code 1 when a variant could not be prepared or stepped.
"""

import sys
import tempfile
from pathlib import Path

from common.python.workers.commands import Commands


def one_step(root: Path, baseline: str, modules: list[str]) -> dict[str, str]:
    """Step each module once; what failed, by module. Raises VariantError when the workload itself does not work."""
    settings = {"seed": 0, "reproducible": False}
    with tempfile.TemporaryDirectory(prefix="one-step-") as scratch:
        bench = Commands(root, Path(scratch), settings, lambda who, what: print(f"{who}: {what}", flush=True))
        failures: dict[str, str] = bench.load(baseline, {module: module for module in modules}, "test")["failures"]
        ready = [module for module in modules if module not in failures]
        return failures | bench.prepare(ready, "test")["failures"]


def main() -> int:
    root, baseline, *modules = sys.argv[1:]
    failures = one_step(Path(root), baseline, modules)
    for module, reason in failures.items():
        print(f"{module}: {reason}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
