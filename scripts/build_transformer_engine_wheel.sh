#!/usr/bin/env bash
# Transformer Engine for the torch that is installed, as a wheel in build/transformer_engine: VERSION [--dry-run], --help for more.
set -euo pipefail
. "$(dirname "$0")/find_python.sh"
exec "$python" -m tools.transformer_engine_wheel "$@"
