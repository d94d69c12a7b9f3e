#!/usr/bin/env bash
# Makes .venv with the locked packages and a CUDA compiler, and says what this machine can run. Running it again is quick.
set -euo pipefail
cd "$(dirname "$0")"

STAMP=.venv/.stamp
LOCKED=(requirements.lock requirements-cuda.lock pyproject.toml setup.sh)
NSIGHT=(cuda-nsight-systems-13-0 cuda-nsight-compute-13-0)

usage() {
    cat <<'END'
Usage: ./setup.sh                      make .venv, install the lock, find or install nvcc, say what this machine can run
       ./setup.sh --system             install compiler, driver and Nsight on Debian or Ubuntu (asks for root)
       ./setup.sh [--system] --dry-run print what would be run
       ./setup.sh --help

PYTHON names the interpreter to use (3.10 to 3.14); NVCC, PATH, CUDA_HOME and /usr/local/cuda are searched for nvcc.
END
}

fail() { # MESSAGE [EXIT CODE]
    echo "setup.sh: $1" >&2
    exit "${2:-1}"
}

step() { # COMMAND...
    if [[ -n $dry ]]; then echo "would run: $*"; else "$@"; fi
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.10 python3.14}; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    fail "no Python 3.10 to 3.14 found${PYTHON:+ (PYTHON=$PYTHON is not one)}: install one, or name it with PYTHON=..."
}

make_venv() {
    [[ -x .venv/bin/pip ]] && return
    local python
    python=$(find_python)
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "$python cannot make a virtual environment: apt-get install python3-venv, or ./setup.sh --system"
    step "$python" -m venv .venv
}

pip() { .venv/bin/python -m pip --disable-pip-version-check --quiet "$@"; }

nvcc_path() { .venv/bin/python -c 'from common.python.base.toolkit import find_nvcc; print(find_nvcc() or "")'; }

install_nvcc() {
    local nvcc
    if [[ -z "$(nvcc_path)" && "$(uname -s)" == Linux ]]; then
        echo "setup: no nvcc on this machine, installing its wheels"
        pip install -c requirements-cuda.lock nvidia-cuda-nvcc nvidia-cuda-crt nvidia-nvvm nvidia-cuda-runtime nvidia-cuda-cccl
    fi
    nvcc=$(nvcc_path)
    if [[ $nvcc == "$(pwd -P)"/.venv/*/nvidia/*/bin/nvcc ]]; then # nobody else's is written to
        make_linkable "${nvcc%/bin/nvcc}"
    fi
}

make_linkable() { # HOME: of nvcc's wheels
    local library
    ln -sfn lib "$1/lib64" # where nvcc looks for libraries, and the wheels put them in lib
    for library in "$1"/lib/lib*.so.*; do # the linker looks for libcublas.so, and the wheels have libcublas.so.13 alone
        [[ ! -e $library || -e ${library%.so.*}.so ]] || ln -sf "${library##*/}" "${library%.so.*}.so"
    done
}

digest() { # of all that `install` installs
    cat "${LOCKED[@]}" | cksum
}

install() {
    local started=$SECONDS
    [[ -n $dry ]] || echo "setup: installing the locked packages into .venv (torch is large: minutes on a slow link)"
    make_venv
    step pip install -r requirements.lock
    step pip install --no-build-isolation --no-deps -e .
    [[ -n $dry ]] || install_nvcc
    [[ -n $dry ]] || echo "setup: done in $((SECONDS - started)) s"
}

report() {
    local gpus nvcc
    gpus=$(nvidia-smi --query-gpu=name,memory.total --format=csv,noheader 2>/dev/null) || gpus=""
    nvcc=$(nvcc_path)
    if [[ -z "$gpus" ]]; then
        echo "GPU:  none. PyTorch pairs are timed on the CPU, Triton pairs are proven in its interpreter."
    elif .venv/bin/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
        echo "GPU:  ${gpus//$'\n'/; }"
    else
        echo "GPU:  ${gpus//$'\n'/; }, but torch cannot use it: its build and the driver do not fit each other."
    fi
    if [[ -n "$nvcc" ]]; then
        echo "nvcc: $nvcc. CUDA pairs are built$([[ -n "$gpus" ]] || echo ', and not run')."
    else
        echo "nvcc: none. CUDA pairs are reported as unsupported."
    fi
    echo "Next: make run TARGETS=ch1"
}

system() { # RUN: the command that carries out each step, or prints it
    local run=("$@") distribution machine
    distribution=$(. /etc/os-release 2>/dev/null && echo "${ID:-}${VERSION_ID//./}") || distribution=""
    case $distribution in
        ubuntu2204 | ubuntu2404 | debian12) ;;
        *) fail "--system knows Ubuntu 22.04 and 24.04 and Debian 12, not '${distribution:-this system}': install them by hand" ;;
    esac
    case $(uname -m) in
        x86_64) machine=x86_64 ;;
        aarch64) machine=sbsa ;;
        *) fail "--system knows x86_64 and aarch64, not $(uname -m)" ;;
    esac
    local repository=https://developer.download.nvidia.com/compute/cuda/repos/$distribution/$machine
    "${run[@]}" apt-get update
    "${run[@]}" apt-get install -y build-essential python3-dev python3-venv ca-certificates curl
    "${run[@]}" curl -fsSL -o /tmp/cuda-keyring.deb "$repository/cuda-keyring_1.1-1_all.deb"
    "${run[@]}" dpkg -i /tmp/cuda-keyring.deb
    "${run[@]}" apt-get update
    "${run[@]}" apt-get install -y "${NSIGHT[@]}"
    if nvidia-smi -L >/dev/null 2>&1; then
        echo "driver: there already"
    elif grep -qs 0x10de /sys/bus/pci/devices/*/vendor; then
        "${run[@]}" apt-get install -y nvidia-open
        echo "driver: restart the machine to load it"
    else
        echo "driver: this machine has no NVIDIA GPU, so none is needed"
    fi
}

mode=venv dry=
for option in "$@"; do
    case $option in
        --system) mode=system ;;
        --dry-run) dry=yes ;;
        -h | --help) usage && exit ;;
        *) fail "unknown option $option: ./setup.sh --help lists them" 2 ;;
    esac
done

if [[ $mode == system ]]; then
    if [[ -n $dry ]]; then
        system echo "would run:"
    elif [[ $(id -u) == 0 ]]; then
        system env
    else
        system sudo
    fi
elif [[ -f $STAMP && $(<"$STAMP") == "$(digest)" ]]; then
    step touch "$STAMP"
    report
else
    install
    [[ -n $dry ]] && exit
    digest >"$STAMP"
    report
fi
