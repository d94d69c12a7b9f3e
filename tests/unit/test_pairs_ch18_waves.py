"""Attention's work in whole waves: how the cache and the last tiles are shared out, and answers at awkward sizes."""

import importlib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import triton
from interpreter import interpret
from triton import knobs

ROOT = Path(__file__).resolve().parents[2]
TILE = 64 * 128 * 2  # bytes of 64 keys of an 8B model
H200, A100, GB10 = (132, 232_448), (108, 166_912), (48, 101_376)  # multiprocessors, and a block's shared memory


@pytest.mark.parametrize("rung", ["", "__single_pass"])
@pytest.mark.parametrize(("gpu", "slots"), [(H200, 132 * 3), (A100, 108 * 2), (GB10, 48)], ids=["h200", "a100", "gb10"])
@pytest.mark.parametrize(
    ("keys", "pairs"), [(131072, 8), (131072, 1), (131071, 7), (65, 8), (64, 8), (1, 8), (8192, 4096)]
)
def test_programs_fill_the_multiprocessors_once(
    rung: str, gpu: tuple[int, int], slots: int, keys: int, pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = SimpleNamespace(multi_processor_count=gpu[0], shared_memory_per_block_optin=gpu[1])
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device=None: properties)
    monkeypatch.setattr(knobs.runtime, "interpret", False)  # other tests of this process may have chosen it
    variant = importlib.import_module(f"ch18.optimized_split_kv_decode{rung}")
    share = variant.share_of(keys, pairs, TILE)
    parts = triton.cdiv(keys, share)
    assert share % variant.KEYS == 0
    assert (parts - 1) * share < keys <= parts * share  # nobody without a key, and none left over
    assert parts == 1 or parts * pairs <= slots
    if share > variant.KEYS and parts > 1:  # with a tile less each, more programs than run at once
        assert triton.cdiv(keys, share - variant.KEYS) * pairs > slots


INTERPRETED = """
import importlib, sys, torch
from pathlib import Path
from common.python.workload import Draw
workload = importlib.import_module("ch18.baseline_flash_forward").workload
variant = importlib.import_module("ch18.optimized_flash_forward__split_tail")
# Of five slots at a time: no whole tile, no tile left, one left, and a last part that is not whole.
for heads, tokens in ((2, 1), (5, 128), (3, 129), (1, 193), (3, 256), (6, 321)):
    inputs = workload.inputs(Draw(torch.device("cpu"), 0, Path(sys.argv[1])), heads, tokens, 32, "float16")
    wanted = workload.reference(**{name: x.double() for name, x in inputs.items()})
    step = variant.prepare(**inputs)
    for _ in range(2):
        out = step()
        error = (out.double() - wanted).norm() / wanted.norm()
        assert error < workload.tolerance, (heads, tokens, error)
        out.fill_(float("nan"))
"""


def test_tiles_of_the_last_wave_are_shared_out_and_merged(tmp_path: Path) -> None:
    interpret(INTERPRETED, tmp_path)
