#!/usr/bin/env bash
# compute-sanitizer over the CUDA and Triton pairs at test size: scripts/sanitize.sh [TARGET...], --help for more.
set -euo pipefail
. "$(dirname "$0")/find_python.sh"
exec "$python" -m tools.testing.sanitize "$@"
