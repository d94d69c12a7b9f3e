#!/usr/bin/env bash
# compute-sanitizer over the CUDA and Triton pairs at test size: scripts/sanitize.sh [TARGET...], --help for more.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
command -v "$python" >/dev/null || python=python3
PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} exec "$python" -m tools.testing.sanitize "$@"
