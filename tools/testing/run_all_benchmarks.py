"""`benchmark_cli run` by its older name: `tools/testing/run_all_benchmarks.py --targets ch10:softmax_dsmem`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the packages of this checkout, started as a file

from tools.cli.benchmark_cli import main

if __name__ == "__main__":
    main(["run", *(sys.argv[1:] or ["all"])])
