"""With sparse=True the gradient is the ids and their rows, as they came, and the update adds to those rows alone."""

from torch import Tensor

from ch13.baseline_sparse_embedding_grad import training_step
from ch13.baseline_sparse_embedding_grad import workload as workload
from common.python.workload import Step


def prepare(table: Tensor, ids: Tensor, upstream: Tensor) -> Step:
    return training_step(table, ids, upstream, sparse=True)
