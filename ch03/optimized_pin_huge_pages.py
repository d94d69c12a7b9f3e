"""madvise asks for pages of 2 MiB, and eight threads touch each of them once; then there are 128 pages to pin."""

import mmap
from concurrent.futures import ThreadPoolExecutor

from torch import Tensor

from ch03.baseline_pin_huge_pages import offloaded
from ch03.baseline_pin_huge_pages import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(huge_pages=True)
THREADS, PAGE = 8, 1 << 21


def prepare(state: Tensor) -> Step:
    pool = ThreadPoolExecutor(THREADS)

    def touch(buffer: Tensor) -> None:
        share = -(-len(buffer) // THREADS)
        list(pool.map(lambda part: part[:: PAGE // part.itemsize].zero_(), buffer.split(share)))

    return offloaded(state, mmap.MADV_HUGEPAGE, touch)
