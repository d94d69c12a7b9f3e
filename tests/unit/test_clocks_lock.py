"""Clocks are locked and given back through a stand-in NVML that writes down what it is asked: never on a real GPU."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from common.python.base.toolkit import ROOT
from common.python.run.clocks_lock import held
from tools.cli.benchmark_cli import app

UUID = "GPU-12ab"
STAND_IN = """
import os
NVML_CLOCK_SM, NVML_CLOCK_LIMIT_ID_TDP = 1, 0xFFFFFF01
class NVMLError(Exception): pass
def write(line):
    with open(os.environ["NVML_LOG"], "a") as log: log.write(line + "\\n")
def nvmlInit(): pass
def nvmlDeviceGetHandleByUUID(uuid):
    if uuid != "GPU-12ab": raise NVMLError("Not Found")
    return "handle"
def nvmlDeviceGetMaxClockInfo(gpu, clock): return 1980
def nvmlDeviceSetGpuLockedClocks(gpu, low, high):
    if os.environ.get("NVML_REFUSES"): raise NVMLError("Insufficient Permissions")
    write(f"set {low} {high}")
def nvmlDeviceResetGpuLockedClocks(gpu): write("reset")
"""


@pytest.fixture(autouse=True)
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    stand_in = ModuleType("pynvml")
    exec(STAND_IN, stand_in.__dict__)
    monkeypatch.setitem(sys.modules, "pynvml", stand_in)
    monkeypatch.setenv("NVML_LOG", str(tmp_path / "log"))
    monkeypatch.delenv("NVML_REFUSES", raising=False)
    return tmp_path / "log"


def asked_of(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


@pytest.mark.parametrize(
    ("asked", "told", "call"),
    [
        ("base", "locked at the base clock", f"set {0xFFFFFF01} {0xFFFFFF01}"),
        ("boost", "locked at the boost clock, 1980 MHz", "set 1980 1980"),
        ("1500", "locked at 1500 MHz", "set 1500 1500"),
    ],
)
def test_clocks_are_held_inside_and_given_back_after(asked: str, told: str, call: str, log: Path) -> None:
    with held(UUID, asked) as line:
        assert line == told
        assert asked_of(log) == [call]
    assert asked_of(log) == [call, "reset"]


def test_clocks_are_given_back_where_the_suite_raises(log: Path) -> None:
    with pytest.raises(KeyboardInterrupt), held("12ab", "1500"):
        raise KeyboardInterrupt
    assert asked_of(log) == ["set 1500 1500", "reset"]


def test_nothing_is_asked_of_the_driver_unless_the_user_asks(log: Path) -> None:
    with held(UUID, None) as told:
        assert told is None
    with held(None, "base") as told:
        assert told == "clocks not locked: there is no GPU"
    assert asked_of(log) == []


def test_nothing_else_of_the_harness_asks_nvml_for_a_change() -> None:
    files = [*ROOT.glob("*.py"), *(file for place in ("common", "tools") for file in (ROOT / place).rglob("*.py"))]
    changing = {
        str(file.relative_to(ROOT)) for file in files if re.search(r"nvml\w*(Set|Reset|Clear)", file.read_text())
    }
    assert changing == {"common/python/run/clocks_lock.py"}


def test_a_driver_that_refuses_is_told_in_one_line_and_the_run_goes_on(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVML_REFUSES", "1")
    with held(UUID, "1500") as told:
        assert told == "clocks not locked: the driver refuses (Insufficient Permissions); it takes root to lock them"
    monkeypatch.delenv("NVML_REFUSES")
    with held("GPU-ffff", "1500") as told:
        assert told is not None
        assert "Not Found" in told
    assert asked_of(log) == []  # and what was never locked is not reset, which might undo another's lock


def test_a_clock_that_is_none_is_a_usage_error() -> None:
    done = CliRunner().invoke(app, ["run", "ch7", "--lock-clocks", "fast"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "benchmark_cli: --lock-clocks 'fast' is no clock: base, boost, or MHz such as 1500\n"
