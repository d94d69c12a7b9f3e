"""Measure this machine's peaks, which limits are made of: `python -m tools.benchmarking.benchmark_peak --help`."""

import typer

from tools.cli.benchmark_cli import peak

if __name__ == "__main__":
    typer.run(peak)
