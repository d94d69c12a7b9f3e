#!/usr/bin/env bash
# Transformer Engine for the torch that is installed, as a wheel in vendor/wheels: VERSION [--dry-run], --help for more.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
if ! command -v "$python" >/dev/null; then
    [[ -z ${PYTHON:-} ]] || { echo "build_transformer_engine_wheel.sh: PYTHON=$PYTHON is no program" >&2; exit 2; }
    python=python3
fi
PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} exec "$python" -m tools.transformer_engine_wheel "$@"
