#!/usr/bin/env bash
# Measures pairs, then keeps an ncu report of one step of each variant (and an nsys timeline): TARGET..., --help for more.
set -euo pipefail
. "$(dirname "$0")/find_python.sh"
exec "$python" -m tools.cli.benchmark_cli run --profile "$@"
