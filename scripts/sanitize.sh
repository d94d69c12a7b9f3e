#!/usr/bin/env bash
# compute-sanitizer over the CUDA and Triton pairs at test size: scripts/sanitize.sh [TARGET...], --help for more.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
if ! command -v "$python" >/dev/null; then
    [[ -z ${PYTHON:-} ]] || { echo "sanitize.sh: PYTHON=$PYTHON is no program" >&2; exit 2; }
    python=python3
fi
PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} exec "$python" -m tools.testing.sanitize "$@"
