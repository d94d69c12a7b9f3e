#!/usr/bin/env bash
# Measures a pair at each value of a figure of its size: batch=1,2,4,...,512 TARGET, --help for more.
set -euo pipefail
. "$(dirname "$0")/find_python.sh"
[[ ${1:-} == --help ]] || set -- --sweep "$@"
exec "$python" -m tools.cli.benchmark_cli run "$@"
