"""These need a CUDA GPU. Asking NVML, not torch, keeps CUDA out of the process that the forkserver comes from."""

import os
from pathlib import Path

import pytest

from common.python.base.machine import machine
from common.python.peaks import store as peak_store
from common.python.peaks.store import Survey

ROOT = Path(__file__).resolve().parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Last come those that use CUDA in this process, as those that import torch here do: it is on the GPU from then on.

    Suites that measure would count it among the processes that are none of theirs.
    """
    here = [item for item in items if "tests/gpu/" in item.path.as_posix()]
    items.sort(key=lambda item: item in here and hasattr(item.getparent(pytest.Module).obj, "torch"))  # type: ignore[union-attr]
    has_gpu = bool(machine().gpus) if here else False
    for item in here:
        item.add_marker(pytest.mark.gpu)
        if not has_gpu:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU"))


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Survey:
    """The peaks of this GPU, measured once for all tests, or those of the artifacts folder in BENCHMARK_PEAKS."""
    from common.python.peaks.survey import survey
    from common.python.workers.process import open_machine

    folder = tmp_path_factory.mktemp("peaks")
    here, found = open_machine(ROOT, folder)
    if kept := os.environ.get("BENCHMARK_PEAKS"):
        stored = peak_store.load(peak_store.path_of(Path(kept), found["uuid"]))
        assert stored is not None, f"{kept} has no peaks of {found['uuid']}"
        return stored
    return survey(ROOT, folder / "peaks.log", here, found, print)


@pytest.fixture(autouse=True)
def peaks_at_hand(request: pytest.FixtureRequest) -> None:
    """A run in a fresh artifacts folder would measure them anew, for a minute each time; a module may say NO_PEAKS."""
    if "tmp_path" not in request.fixturenames or hasattr(request.module, "NO_PEAKS"):
        return
    measured, tmp_path = request.getfixturevalue("measured"), request.getfixturevalue("tmp_path")
    for artifacts in (tmp_path, tmp_path / "artifacts"):
        peak_store.save(peak_store.path_of(artifacts, measured.uuid), measured)
