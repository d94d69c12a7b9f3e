# Sourced by the scripts beside it: `python` is $PYTHON, else that of .venv, else python3; it finds this checkout's code.
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
if ! command -v "$python" >/dev/null; then
    [[ -z ${PYTHON:-} ]] || { echo "${0##*/}: PYTHON=$PYTHON is no program" >&2; exit 2; }
    python=python3
fi
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
