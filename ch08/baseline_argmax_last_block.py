"""One block finds the largest of a row of logits: eight rows keep eight multiprocessors busy, and all others idle."""

from torch import Tensor, int64

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Step, Workload

requires = needs(sm=80)


def with_winners(draw: Draw, rows: int, vocabulary: int) -> Tensor:
    """Normal logits, of which one in each row is far above all others: no tie, no doubt by rounding."""
    logits, winners = draw.normal(rows, vocabulary), draw.integers(rows, 1, high=vocabulary)
    return logits.scatter_(1, winners, 20.0)


workload = Workload(
    inputs=lambda draw, rows, vocabulary: {"logits": with_winners(draw, rows, vocabulary)},
    reference=lambda logits: logits.argmax(dim=1),
    # 4 MB come in a microsecond; a launch takes as long.
    cost=lambda rows, vocabulary: Cost(read=4 * rows * vocabulary, write=8 * rows, launches=1),
    sizes={"bench": {"rows": 8, "vocabulary": 128256}, "test": {"rows": 5, "vocabulary": 9973}},
    tolerance=0.0,  # ids
)


def prepare(logits: Tensor) -> Step:
    argmax, ids = load_cuda(__file__, "argmax"), logits.new_empty(len(logits), dtype=int64)

    def step() -> Tensor:
        argmax(logits, ids, *logits.shape)
        return ids

    return step
