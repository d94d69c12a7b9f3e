"""The rehearsal is a whole proof, and leaves nothing behind that a pair could notice."""

import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

from common.python import rehearsal
from common.python.process_settings import settings
from common.python.rehearsal import rehearse
from common.python.workload import Step

CPU = torch.device("cpu")


def test_it_leaves_settings_random_numbers_and_scratch_as_they_were(tmp_path: Path) -> None:
    before, drawn = settings(), torch.get_rng_state()
    rehearse(CPU, tmp_path)
    assert settings() == before
    assert torch.equal(torch.get_rng_state(), drawn)
    assert os.listdir(tmp_path) == []


def wrong(a: Tensor, b: Tensor, i: Tensor) -> Step:
    return lambda: (a * 1.1, b + 0, i + 0)


def raising(a: Tensor, b: Tensor, i: Tensor) -> Step:
    raise torch.OutOfMemoryError("another pair has it all")


@pytest.mark.parametrize(("prepare", "told"), [(wrong, "output 0: relative error"), (raising, "another pair has it")])
def test_a_machine_on_which_it_fails_is_told(
    prepare: object, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearsal, "prepare", prepare)
    with pytest.raises(RuntimeError, match=told):
        rehearse(CPU, tmp_path)


def test_a_proof_that_would_accept_anything_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "toothless", lambda prep: ["zeros"])
    with pytest.raises(RuntimeError, match="would accept: zeros"):
        rehearse(CPU, tmp_path)
