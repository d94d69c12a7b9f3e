"""These need a CUDA GPU. Asking NVML, not torch, keeps CUDA out of the process that the forkserver comes from."""

import pytest

from common.python.machine import machine


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if "tests/gpu/" in item.path.as_posix()]
    has_gpu = bool(machine().gpus) if here else False
    for item in here:
        item.add_marker(pytest.mark.gpu)
        if not has_gpu:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU"))
