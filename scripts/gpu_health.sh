#!/usr/bin/env bash
# What this machine and its GPUs have and lack for measuring, and what would change it: [--json].
set -euo pipefail
. "$(dirname "$0")/find_python.sh"
exec "$python" -m tools.cli.benchmark_cli doctor "$@"
