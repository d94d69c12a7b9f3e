"""What several files of tests begin with."""

import sys
from pathlib import Path

import pytest
from fake_nvml import FakeNvml, fake_nvml
from small_workload import Prepares, preparer


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = fake_nvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake


@pytest.fixture
def prepared(tmp_path: Path) -> Prepares:
    return preparer(tmp_path)
