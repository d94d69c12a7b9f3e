"""One call hands the driver a list of all copies: the host's price is paid once, the copy engine's for each page."""

from torch import Tensor

from ch11.baseline_batched_page_copy import by_host
from ch11.baseline_batched_page_copy import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(pool: Tensor, table: Tensor) -> Step:
    return by_host(__file__, pool, table)
