#!/usr/bin/env bash
# Transformer Engine for the torch that is installed, as a wheel in vendor/wheels: VERSION [--dry-run], --help for more.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
command -v "$python" >/dev/null || python=python3
PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} exec "$python" -m tools.transformer_engine_wheel "$@"
