"""Measure this machine's peaks, which limits are made of: `python -m tools.benchmarking.benchmark_peak --help`."""

import sys

from tools.cli.benchmark_cli import main

if __name__ == "__main__":
    main(["peak", *sys.argv[1:]])
