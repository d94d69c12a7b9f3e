"""Eight threads unpack, for NumPy lets go of the interpreter's lock: as many bytes cross PCIe as in the baseline."""

from concurrent.futures import ThreadPoolExecutor

import numpy
import torch
from torch import Tensor

from ch05.baseline_packed_token_decode import BITS, GROUP, unpack
from ch05.baseline_packed_token_decode import workload as workload
from common.python.workload import Step

THREADS, PARTS = 8, 32


def prepare(words: Tensor, tokens: Tensor) -> Step:
    packed = words.numpy().view(numpy.uint32).reshape(-1, BITS)
    unpacked = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=tokens.is_cuda)
    lanes, pool = unpacked.numpy().view(numpy.uint32).reshape(-1, GROUP), ThreadPoolExecutor(THREADS)
    parts = [*zip(numpy.array_split(packed, PARTS), numpy.array_split(lanes, PARTS))]  # views

    def step() -> Tensor:
        list(pool.map(lambda part: unpack(*part), parts))  # the list waits, and raises what a thread raised
        return tokens.copy_(unpacked, non_blocking=True)

    return step
