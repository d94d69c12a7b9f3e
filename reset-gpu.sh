#!/usr/bin/env bash
# Lists the processes on one GPU and, once that is confirmed, stops them and resets the GPU. Not for a shared GPU.
set -euo pipefail
enable -n kill # the command, which takes the place that PATH gives it

usage() {
    cat <<'END'
Usage: ./reset-gpu.sh [--gpu N|UUID] [--grace S] [--dry-run | --yes]

  --gpu N|UUID  which one; needed where there are several
  --grace S     seconds from SIGTERM to SIGKILL (10)
  --dry-run     only say what would be done; the default without root, which a reset takes
  --yes         do not ask, for scripts

Stops every process that computes or draws on the GPU, whoever owns it, and loses what they have not saved.
Exit codes: 0 done or shown, 1 failed, 2 usage, 4 no GPU, 130 not confirmed.
END
}

fail() { # MESSAGE [EXIT CODE]
    echo "reset-gpu.sh: $1" >&2
    exit "${2:-1}"
}

gpus() { nvidia-smi --query-gpu=index,uuid,name --format=csv,noheader; }

processes() { # pids on the chosen GPU, each once
    local compute all
    compute=$(nvidia-smi --query-compute-apps=pid --format=csv,noheader -i "$uuid") || return
    # Those that draw, too; where that is not supported, nvidia-smi itself refuses to reset a GPU that is in use.
    all=$(nvidia-smi pmon -c 1 -i "$uuid" | awk '!/^#/ { print $2 }') || all=''
    printf '%s\n' "$compute" "$all" | awk '/^ *[0-9]+ *$/ && $1 > 1 { print $1 }' | sort -nu
}

started() { # PID: when it began, in clock ticks; nothing for one that is gone, dead or of another container
    sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | awk '$1 !~ /[ZX]/ { print $20 }' || true
}

alive() { # of the processes that were listed, those that are still the same ones
    local entry pid
    for entry in "${listed[@]}"; do
        pid=${entry%%:*}
        [[ -n ${entry#*:} && $(started "$pid") == "${entry#*:}" ]] && echo "$pid"
    done
    true
}

signal() { # SIGNAL: to what is still alive
    local pid
    for pid in $(alive); do
        kill "-$1" "$pid" || echo "reset-gpu.sh: cannot stop process $pid" >&2
    done
}

choose() { # sets uuid and name
    local all found
    all=$(gpus) || fail "nvidia-smi finds no GPU: ${all:-is the driver loaded?}" 4
    [[ -n $all ]] || fail "there is no GPU" 4
    if [[ -z $gpu ]]; then
        [[ $(wc -l <<<"$all") -eq 1 ]] || fail "several GPUs: name one with --gpu N, of $(cut -d, -f1 <<<"$all" | paste -sd' ')" 2
        found=$all
    else
        found=$(awk -F', *' -v gpu="$gpu" '$1 == gpu || $2 == gpu' <<<"$all")
        [[ -n $found ]] || fail "--gpu $gpu is not here: $(cut -d, -f1 <<<"$all" | paste -sd' '), or a UUID from nvidia-smi -L" 2
    fi
    IFS=, read -r index uuid name <<<"$found"
    uuid=${uuid# } name=${name# }
}

gpu='' grace=10 mode=ask
user=$(id -u)
[[ $user -eq 0 ]] || mode=dry
while (($#)); do
    case $1 in
    --gpu) gpu=${2:-} && shift ;;
    --grace) grace=${2:-} && shift ;;
    --dry-run) mode=dry ;;
    --yes) [[ $mode == dry ]] || mode=yes ;;
    --help | -h) usage && exit ;;
    *) fail "unknown option ${1@Q}: see --help" 2 ;;
    esac
    shift || fail "an option lacks its value: see --help" 2
done
[[ $gpu =~ ^([0-9]+|GPU-[0-9A-Za-z-]+)?$ ]] || fail "--gpu ${gpu@Q} is neither a number nor a UUID such as GPU-1234abcd" 2
[[ $grace =~ ^[0-9]{1,4}$ ]] || fail "--grace ${grace@Q} is no number of seconds" 2
command -v nvidia-smi >/dev/null || fail "there is no nvidia-smi: no driver is installed" 4

choose
pids=$(processes) || fail "nvidia-smi does not say what runs on GPU $index"
listed=()
echo "GPU $index, $name, $uuid"
for pid in $pids; do
    listed+=("$pid:$(started "$pid")")
    ps -o pid=,user=,etime=,args= -p "$pid" | tr -c '[:print:]\n' '?' | sed 's/^/  /' || echo "  $pid (its name is not to be seen)"
done
((${#listed[@]})) || echo "  no process is on it"

if [[ $mode == dry ]]; then
    for pid in $(alive); do
        echo "would run: kill -TERM $pid, and kill -KILL $pid if it is there after $grace s"
    done
    echo "would run: nvidia-smi --gpu-reset -i $uuid"
    [[ $user -eq 0 ]] || echo "nothing was done: a reset takes root"
    exit
fi
if [[ $mode == ask ]]; then
    answer=''
    read -rp "Stop ${#listed[@]} processes and reset GPU $index? Type yes: " answer || true
    [[ $answer == yes ]] || fail "nothing was done" 130
fi

signal TERM
for ((waited = 0; waited < 10 * grace; waited++)); do
    [[ -n $(alive) ]] || break
    sleep 0.1
done
signal KILL
for ((waited = 0; waited < 50; waited++)); do # a process in the driver takes a while to die
    [[ -n $(alive) ]] || break
    sleep 0.1
done
left=$(processes) || fail "nvidia-smi does not say what runs on GPU $index: it was not reset"
[[ -z $left ]] || fail "GPU $index was not reset: on it still or anew: $(paste -sd' ' <<<"$left")"
nvidia-smi --gpu-reset -i "$uuid"
