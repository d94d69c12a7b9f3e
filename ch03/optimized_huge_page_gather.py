"""madvise asks for pages of 2 MiB before the table is filled: the TLB holds all of them, and walks nearly vanish."""

import mmap

from torch import Tensor

from ch03.baseline_huge_page_gather import gather, on_pages
from ch03.baseline_huge_page_gather import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(huge_pages=True)


def prepare(table: Tensor, ids: Tensor) -> Step:
    return gather(on_pages(table, mmap.MADV_HUGEPAGE), ids)
