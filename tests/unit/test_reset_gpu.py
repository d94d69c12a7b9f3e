"""reset-gpu.sh, with stand-ins that write down their command lines: on its PATH is no real nvidia-smi and no kill.

The stand-in for kill signals one process only, a `sleep` that the test itself started.
"""

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from synthetic_run import ROOT, program, written

SCRIPT = ROOT / "reset-gpu.sh"
TOOLS = ("awk", "bash", "cat", "cut", "env", "grep", "paste", "ps", "sed", "sleep", "sort", "tr", "wc")
ONE = "0, GPU-aaaa, NVIDIA H200"
TWO = f"{ONE}\n1, GPU-bbbb, NVIDIA H200"
NVIDIA_SMI = """#!/usr/bin/env bash
echo "nvidia-smi $*" >> "$HERE/log"
case "$*" in
--query-gpu*) cat "$HERE/gpus" ;;
--query-compute-apps*) [[ -e $HERE/broken ]] && exit 9
    [[ "$*" == *"-i GPU-aaaa"* ]] || { echo 4000001; exit; }
    for pid in $(cat "$HERE/pids"); do
        grep -qs ") [^Z]" /proc/$pid/stat && echo "$pid"
    done
    true ;;
pmon*) echo "# gpu pid type"; echo "    0   -   -"; exit "${PMON:-0}" ;;
--gpu-reset*) exit 0 ;;
*) exit 99 ;;
esac
"""
KILL = """#!/usr/bin/env bash
echo "kill $*" >> "$HERE/log"
[[ $2 == "$(cat "$HERE/victim")" ]] || exit 1
exec @KILL@ "$@"
"""
Done = subprocess.CompletedProcess[str]
Process = subprocess.Popen[bytes]


@dataclass
class Bench:
    """A folder with stand-ins, one process that is on the GPU, and what was run."""

    place: Path

    def tell(self, **files: object) -> None:
        """What the stand-ins are to say: `gpus`, `pids` on the first of them, and the `victim` that may be killed."""
        written(self.place, {name: f"{said}\n" for name, said in files.items()})

    def run(self, *words: str, answer: str = "") -> Done:
        environment = {"PATH": str(self.place / "bin"), "HERE": str(self.place)}
        command = [str(self.place / "bin" / "bash"), str(SCRIPT), *words]
        return subprocess.run(
            command, input=answer, capture_output=True, text=True, timeout=30, check=False, env=environment
        )

    def did(self) -> list[str]:
        """The command lines that change something."""
        lines = (self.place / "log").read_text().splitlines() if (self.place / "log").exists() else []
        return [line for line in lines if "--query" not in line and "pmon" not in line]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    real = {name: shutil.which(name) or pytest.fail(name) for name in (*TOOLS, "kill")}
    scripts = {"nvidia-smi": NVIDIA_SMI, "kill": KILL.replace("@KILL@", real.pop("kill")), "id": "#!/bin/sh\necho 0\n"}
    for name, text in scripts.items():
        program(tmp_path / "bin" / name, text)
    for name, path in real.items():
        (tmp_path / "bin" / name).symlink_to(path)
    made = Bench(tmp_path)
    made.tell(gpus=ONE, pids="", victim="none")
    return made


@pytest.fixture
def process(bench: Bench, request: pytest.FixtureRequest) -> Iterator[Process]:
    """A process that is on the GPU; a test may say what it runs before it sleeps."""
    first = getattr(request, "param", "")
    with subprocess.Popen(["bash", "-c", f"{first} echo; exec sleep 60"], stdout=subprocess.PIPE) as started:
        started.stdout.readline()
        bench.tell(pids=started.pid, victim=started.pid)
        yield started
        started.kill()


def test_without_root_it_only_says_what_it_would_do(bench: Bench, process: Process) -> None:
    program(bench.place / "bin" / "id", "#!/bin/sh\necho 1000\n")
    for words in ([], ["--yes"], ["--dry-run"]):
        done = bench.run(*words, answer="yes\n")
        assert (done.returncode, done.stderr) == (0, "")
        assert (
            f"would run: kill -TERM {process.pid}, and kill -KILL {process.pid} if it is there after 10 s"
            in done.stdout
        )
        assert "would run: nvidia-smi --gpu-reset -i GPU-aaaa\nnothing was done: a reset takes root" in done.stdout
    assert bench.did() == []
    assert process.poll() is None


@pytest.mark.parametrize("answer", ["", "\n", "y\n", "no\n", "YES\n"])
def test_what_is_not_confirmed_is_not_done(answer: str, bench: Bench, process: Process) -> None:
    done = bench.run(answer=answer)
    assert (done.returncode, done.stderr) == (130, "reset-gpu.sh: nothing was done\n")
    assert bench.did() == []


@pytest.mark.parametrize(("words", "answer"), [(["--yes"], ""), ([], "yes\n")])
def test_confirmed_it_stops_the_process_and_resets(
    words: list[str], answer: str, bench: Bench, process: Process
) -> None:
    done = bench.run(*words, answer=answer)
    assert (done.returncode, done.stderr) == (0, "")
    assert bench.did() == [f"kill -TERM {process.pid}", "nvidia-smi --gpu-reset -i GPU-aaaa"]
    assert process.wait(5) == -signal.SIGTERM


@pytest.mark.parametrize("process", ["trap '' TERM;"], indirect=True)
def test_what_ignores_sigterm_is_killed_after_the_grace_time(bench: Bench, process: Process) -> None:
    assert bench.run("--yes", "--grace", "0").returncode == 0
    assert bench.did() == [
        f"kill -TERM {process.pid}",
        f"kill -KILL {process.pid}",
        "nvidia-smi --gpu-reset -i GPU-aaaa",
    ]
    assert process.wait(5) == -signal.SIGKILL


def test_a_process_of_another_container_is_left_and_keeps_the_gpu_from_being_reset(bench: Bench) -> None:
    bench.tell(gpus=TWO)  # the other one has such a process
    done = bench.run("--gpu", "1", "--yes")
    assert (done.returncode, bench.did()) == (1, [])
    assert "4000001 (its name is not to be seen)" in done.stdout
    assert done.stderr == "reset-gpu.sh: GPU 1 was not reset: on it still or anew: 4000001\n"


@pytest.mark.parametrize("gpu", ["1", "GPU-bbbb"])
def test_of_several_gpus_only_the_chosen_one_is_touched(gpu: str, bench: Bench, process: Process) -> None:
    bench.tell(gpus=TWO)
    done = bench.run("--gpu", gpu, "--dry-run")
    assert "would run: nvidia-smi --gpu-reset -i GPU-bbbb" in done.stdout
    assert str(process.pid) not in done.stdout
    assert bench.run("--gpu", "0", "--yes").returncode == 0
    assert bench.did()[-1] == "nvidia-smi --gpu-reset -i GPU-aaaa"


@pytest.mark.parametrize(
    ("words", "right"),
    [
        (["--bogus"], "see --help"),
        (["--gpu"], "see --help"),
        (["--grace"], "see --help"),
        (["--grace", "-1"], "no number of seconds"),
        (["--gpu", "0; touch owned"], "neither a number nor a UUID"),
        (["--gpu", "$(touch owned)"], "neither a number nor a UUID"),
        (["--gpu", "7"], "--gpu 7 is not here: 0 1, or a UUID"),
        (["--gpu", "GPU-aa"], "is not here"),
        ([], "several GPUs: name one with --gpu N, of 0 1"),
    ],
)
def test_usage(words: list[str], right: str, bench: Bench) -> None:
    bench.tell(gpus=TWO)
    done = bench.run(*words, answer="yes\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert right in done.stderr
    assert re.fullmatch(r"reset-gpu\.sh: .*\n", done.stderr)
    assert bench.did() == []
