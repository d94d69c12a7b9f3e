"""The tcgen05 probe on a real device: right on sm_100 and sm_103, and a clear refusal on every other."""

import subprocess
from pathlib import Path

import pytest

from common.python.base.machine import machine
from common.python.base.toolkit import find_nvcc, nvcc_version

PROBE = Path(__file__).resolve().parents[2] / "tools" / "tcgen05_probe.cu"


@pytest.mark.skipif(find_nvcc() is None or (nvcc_version() or "") < "13", reason="needs nvcc 13")
def test_the_probe_is_right_or_says_that_this_gpu_has_no_tcgen05(tmp_path: Path) -> None:
    sm = machine().gpus[0].sm
    target = "103a" if sm == 103 else "100a"
    words = [find_nvcc(), f"-arch=compute_{target}", f"-code=sm_{target}", "-o", tmp_path / "probe", PROBE]
    subprocess.run([str(word) for word in words], check=True)
    done = subprocess.run([str(tmp_path / "probe")], capture_output=True, text=True, check=False, timeout=60)
    if sm in (100, 103):
        assert (done.returncode, "0 of 8192 elements differ" in done.stdout) == (0, True), done.stdout
    else:
        assert done.returncode == 2
        assert f"is sm_{sm}, which has no tcgen05: it is for sm_100 and sm_103" in done.stdout
