"""Each id is one atomic addition in global memory, and the L2 cache adds to the frequent ids one after the other."""

from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Step, Workload

requires = needs(sm=80)


def drawn(draw: Draw, n: int, vocabulary: int) -> Tensor:
    """Ids by the law of Zipf and Mandelbrot, p(id) ~ 1 / (id + 2.7), by its inverse.

    Small ids are frequent, as in a vocabulary of merges, which are numbered in the order in which they were found.
    """
    ratio = (vocabulary + 2.7) / 2.7
    return (ratio ** draw.uniform(n)).mul_(2.7).sub_(2.7).clamp_(0, vocabulary - 1).int()


workload = Workload(
    inputs=lambda draw, n, vocabulary: {"ids": drawn(draw, n, vocabulary), "vocabulary": vocabulary},
    reference=lambda ids, vocabulary: ids.bincount(minlength=vocabulary),
    cost=lambda n, vocabulary: Cost(read=4 * n, write=4 * vocabulary, items=n, unit="ids"),
    # Llama 3's vocabulary: 501 KiB of counters, twice what a multiprocessor has.
    sizes={"bench": {"n": 1 << 26, "vocabulary": 128256}, "test": {"n": 300007, "vocabulary": 50021}},
    tolerance=0.0,  # counts are exact
)


def prepare(ids: Tensor, vocabulary: int) -> Step:
    count, counts = load_cuda(__file__, "count_ids"), ids.new_empty(vocabulary)

    def step() -> Tensor:
        count(ids, counts, ids.numel(), counts.numel())
        return counts

    return step
