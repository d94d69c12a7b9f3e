"""The GPU's clocks held at one value while a suite runs, and given back however it ends.

A guardian, a process of its own, asks NVML for it and waits on a pipe that only the run holds open. The kernel closes
that pipe when the run ends, is interrupted or is killed with SIGKILL, and the guardian then gives the clocks back; it
leads its own session, so that Ctrl-C does not reach it. Only killing the guardian itself, too, leaves them locked
(`nvidia-smi -rgc` gives them back). Locking needs root. What the driver refuses does not end the run: it goes on with
free clocks, says so and notes it in its manifest. NVML cannot tell of an earlier lock, so that one is not restored.
"""

import contextlib
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
GUARDIAN = [sys.executable, "-m", "common.python.run.clocks_lock"]
LOCKED = "locked"
ANSWER_S = STOP_S = 15.0  # NVML may have to wake the driver up
ASKED = re.compile(r"base|boost|[1-9][0-9]{1,4}")


class ClockError(ValueError):
    """A clock that nobody can be asked for; the message says what would be right."""


def check(asked: str | None) -> None:
    """Raises ClockError for what is neither base, boost nor a number of MHz; None asks for nothing."""
    if asked is not None and not ASKED.fullmatch(asked):
        raise ClockError(f"--lock-clocks {asked[:40]!r} is no clock: base, boost, or MHz such as 1500")


@contextlib.contextmanager
def held(uuid: str | None, asked: str | None) -> Iterator[str | None]:
    """Hold the SM clock of the GPU with this UUID; gives one line for the manifest, or None where nothing was asked.

    The line begins with `locked`, or says why the clocks are free.
    """
    if asked is None:
        yield None
        return
    if uuid is None:
        yield "clocks not locked: there is no GPU"
        return
    command = [*GUARDIAN, uuid, asked]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, start_new_session=True, text=True
    ) as guardian:
        try:
            yield _first_line(guardian)
        finally:
            if guardian.stdin is not None:
                guardian.stdin.close()
            try:
                guardian.wait(STOP_S)
            except subprocess.TimeoutExpired:  # it is stuck in the driver, and restores whenever that lets go
                guardian.returncode = 0


def _first_line(guardian: "subprocess.Popen[str]") -> str:
    if guardian.stdout is None or not select.select([guardian.stdout], [], [], ANSWER_S)[0]:
        return "clocks not locked: the driver gave no answer"
    return guardian.stdout.readline().strip() or "clocks not locked: the guardian ended without an answer"


# The guardian's side.


def guard(uuid: str, asked: str) -> None:
    """Lock, say so in one line, wait until stdin is closed, and give the clocks back."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when the run does, and not before
    import pynvml

    try:
        pynvml.nvmlInit()
        gpu = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid.removeprefix('GPU-')}")
        low, high, told = limits(pynvml, gpu, asked)
        pynvml.nvmlDeviceSetGpuLockedClocks(gpu, low, high)
    except pynvml.NVMLError as error:
        print(f"clocks not locked: the driver refuses ({error}); it takes root to lock them", flush=True)
        return
    try:
        with contextlib.suppress(BrokenPipeError):  # the run is gone already
            print(f"{LOCKED} at {told}", flush=True)
        sys.stdin.read()
    finally:
        pynvml.nvmlDeviceResetGpuLockedClocks(gpu)


def limits(nvml: Any, gpu: Any, asked: str) -> tuple[int, int, str]:
    """The least and the most MHz to lock to, and what to call it. `base` is what the GPU keeps within its power."""
    if asked == "base":
        return nvml.NVML_CLOCK_LIMIT_ID_TDP, nvml.NVML_CLOCK_LIMIT_ID_TDP, "the base clock"
    if asked == "boost":
        most = nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM)
        return most, most, f"the boost clock, {most} MHz"
    return int(asked), int(asked), f"{asked} MHz"


if __name__ == "__main__":
    guard(*sys.argv[1:])
