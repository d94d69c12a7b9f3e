"""What chapter 13's pairs about memory promise and a CPU can show: lengths that grow, and what a rank keeps."""

import gc
import importlib
import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from changed import nightly_unless_changed
from torch import Tensor
from torch.multiprocessing import start_processes

from ch13.baseline_fsdp_sharding import workload as fsdp_sharding
from common.python.workload import Draw, Prepare

CPU = torch.device("cpu")
pytestmark = nightly_unless_changed("ch13:fsdp_sharding")


def held_bytes() -> int:
    """Of all tensors of this process that Python knows, storages that several share counted once.

    What is garbage does not count: other tests may have left some, which would be collected meanwhile.
    """
    gc.collect()
    storages = {}
    for found in gc.get_objects():
        if type(found) in (Tensor, torch.nn.Parameter):
            for tensor in (found.detach(), found.grad):
                if type(tensor) is Tensor and tensor.layout is torch.strided:
                    storage = tensor.untyped_storage()
                    storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def join(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / "store"), 2), rank=rank, world_size=2)


def leave() -> None:
    """End this rank when all have come here, without destructors.

    DDP's reducer is the last to hold the group, and its destructor waits, with the GIL, for a thread of gloo's that may
    be waiting for the GIL to let go of the last collective: one run hung until it was killed (torch 2.13).
    """
    dist.barrier()
    os._exit(0)


def prepare_of(variant: str) -> Prepare:
    """Imported where it is asked for: FSDP takes two seconds, which each process that collects would spend."""
    found: Prepare = importlib.import_module(f"ch13.{variant}_fsdp_sharding").prepare
    return found


def tell_what_a_step_leaves(rank: int, prepare: Prepare, folder: Path) -> None:
    join(rank, folder)
    given = fsdp_sharding.inputs(Draw(CPU, 0, folder, rank, 2), blocks=4, width=64, tokens=3)
    before = held_bytes()
    step = prepare(**given)
    step()
    (folder / f"rank{rank}").write_text(str(held_bytes() - before))
    leave()


@pytest.mark.parametrize(("variant", "ranks"), [("baseline", 1), ("optimized", 2)])
def test_a_rank_keeps_sixteen_bytes_a_parameter_or_its_share_of_them(variant: str, ranks: int, tmp_path: Path) -> None:
    start_processes(tell_what_a_step_leaves, (prepare_of(variant), tmp_path), nprocs=2, start_method="fork")
    parameters = 4 * 8 * 64**2
    for rank in range(2):
        assert int((tmp_path / f"rank{rank}").read_text()) / parameters == pytest.approx(16 / ranks, rel=0.05)


def tell_which_weights_are_updated(rank: int, prepare: Prepare, folder: Path) -> None:
    from torch.distributed.tensor import DTensor

    join(rank, folder)
    out = prepare(**fsdp_sharding.inputs(Draw(CPU, 0, folder, rank, 2), **fsdp_sharding.sizes["test"]))()
    of_model = {found._local_tensor.data_ptr() for found in gc.get_objects() if issubclass(type(found), DTensor)}
    (folder / f"rank{rank}").write_text(str({weight.data_ptr() for weight in out[len(out) // 2 :]} <= of_model))
    leave()


def test_what_is_updated_is_the_models_own_rows_and_no_copy(tmp_path: Path) -> None:
    start_processes(tell_which_weights_are_updated, (prepare_of("optimized"), tmp_path), nprocs=2, start_method="fork")
    assert [(tmp_path / f"rank{rank}").read_text() for rank in range(2)] == ["True", "True"]
