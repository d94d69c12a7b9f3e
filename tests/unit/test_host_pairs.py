"""Chapter 3's settings, asked of the kernel: pages of the table, and chunks of the staging ring."""

import importlib
import mmap
import re
from pathlib import Path

import pytest
import torch

from ch03.baseline_huge_page_gather import gather, on_pages

MIB = 2**20
MODE = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def huge_bytes(address: int) -> int:
    """Of the mapping that holds this address, what the kernel keeps in huge pages."""
    for mapping in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text()):
        first, last = (int(bound, 16) for bound in mapping.split(" ")[0].split("-"))
        if first <= address < last:
            return int(re.findall(r"AnonHugePages:\s+(\d+) kB", mapping)[0]) * 1024
    raise AssertionError(f"no mapping holds {address:#x}")


@pytest.mark.skipif("[never]" in MODE.read_text(), reason="this kernel gives no huge pages")
def test_the_table_is_copied_to_the_pages_that_are_asked_for() -> None:
    table = torch.arange(16 * MIB, dtype=torch.float32).view(-1, 64)
    copies = {advice: on_pages(table, advice) for advice in (mmap.MADV_HUGEPAGE, mmap.MADV_NOHUGEPAGE)}
    assert all(torch.equal(copy, table) for copy in copies.values())
    huge = {advice: huge_bytes(copy.data_ptr() + copy.nbytes // 2) for advice, copy in copies.items()}
    assert huge[mmap.MADV_HUGEPAGE] >= table.nbytes - 2 * 2 * MIB
    assert huge[mmap.MADV_NOHUGEPAGE] == 0


def test_rows_are_gathered_in_the_order_of_the_ids() -> None:
    table, ids = torch.arange(997 * 33.0).view(997, 33), torch.tensor([996, 0, 5, 996])
    assert torch.equal(gather(table, ids)(), table[ids])


def test_chunks_and_slots_of_the_staging_ring_cover_the_tensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More chunks than slots, and a short last one; on a CPU every copy is over when it returns."""
    module = importlib.import_module("ch03.optimized_staging_threads")
    monkeypatch.setattr(module, "CHUNK", 7)
    host, device = torch.arange(1000.0), torch.zeros(1000)
    step = module.prepare(host, device)
    assert torch.equal(step(), host)
    host.neg_()
    assert torch.equal(step(), host)
