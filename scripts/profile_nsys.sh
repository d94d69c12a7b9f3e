#!/usr/bin/env bash
# Measures pairs, then keeps an nsys timeline of one step of each variant (and an ncu report): TARGET..., --help for more.
set -euo pipefail
. "$(dirname "$0")/find_python.sh"
exec "$python" -m tools.cli.benchmark_cli run --profile "$@"
