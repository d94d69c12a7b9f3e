"""One kernel takes a tile of rows through all layers in registers; past it stream the weights alone, out of L2."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from ch02.baseline_depth_first_mlp import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=90)  # TMA: without it Triton keeps an address for every piece of the weights, and registers spill
ROWS = 128  # of a tile: 64 for each of two warp groups, which have registers for no more
STAGES = 3  # of 64 KiB at width 256: half of a layer's weights is multiplied, the next two halves are on their way
WARPS = 8


@triton.jit
def pack(numbers):
    """Two neighbours a word: 16-bit numbers that a loop carries have a register each, and reach tl.dot through shared
    memory, of which the weights leave none."""
    low, high = tl.split(tl.reshape(numbers.to(tl.uint16, bitcast=True), (numbers.shape[0], numbers.shape[1] // 2, 2)))
    return low.to(tl.uint32) | high.to(tl.uint32) << 16


@triton.jit
def unpack(words, dtype: tl.constexpr):
    pairs = tl.join(words.to(tl.uint16), (words >> 16).to(tl.uint16))
    return tl.reshape(pairs, (words.shape[0], 2 * words.shape[1])).to(dtype, bitcast=True)


@triton.jit
def network(x, weights, out, rows, layers, ROWS: tl.constexpr, HALF: tl.constexpr, STAGES: tl.constexpr):
    """x and out describe [rows, width], weights [layers * 2 HALF, 2 HALF] with zeros where a layer is narrower."""
    for tile in range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        words = pack(x.load([tile * ROWS, 0]))
        left = tl.zeros((ROWS, HALF // 2), tl.uint32)
        for half in tl.range(2 * layers, num_stages=STAGES):  # of a layer's columns: sums of all would not fit
            total = tl.dot(unpack(words, x.dtype), weights.load([half // 2 * 2 * HALF, half % 2 * HALF]))
            made = pack(tl.maximum(total, 0.0).to(x.dtype))
            both = tl.reshape(tl.permute(tl.join(left, made), (0, 2, 1)), (ROWS, HALF))  # side by side
            words, left = tl.where(half % 2 == 1, both, words), made
        left, right = tl.split(tl.permute(tl.reshape(words, (ROWS, 2, HALF // 2)), (0, 2, 1)))
        out.store([tile * ROWS, 0], unpack(left, x.dtype))
        out.store([tile * ROWS, HALF], unpack(right, x.dtype))


def tile_and_stages() -> tuple[int, int]:
    """What shared memory has room for: ROWS and STAGES on an H100 or a B200, which have 227 KiB, else less of both."""
    roomy = triton.knobs.runtime.interpret or torch.cuda.get_device_properties().shared_memory_per_block_optin > 225_000
    return (ROWS, STAGES) if roomy else (32, 2)


def prepare(x: Tensor, weights: list[Tensor]) -> Step:
    (rows, width), layers, out = x.shape, len(weights), torch.empty_like(x)
    half, (tile, stages) = max(16, triton.next_power_of_2(width) // 2), tile_and_stages()
    stacked = x.new_zeros(layers, 2 * half, 2 * half)
    stacked[:, :width, :width] = torch.stack(weights)
    boxes = [
        TensorDescriptor.from_tensor(x, [tile, 2 * half]),
        TensorDescriptor.from_tensor(stacked.flatten(0, 1), [2 * half, half]),
        TensorDescriptor.from_tensor(out, [tile, half]),
    ]
    # In the interpreter three programs, so that each has several tiles.
    most = 3 if triton.knobs.runtime.interpret else torch.cuda.get_device_properties().multi_processor_count
    grid = (min(most, triton.cdiv(rows, tile)),)

    def step() -> Tensor:
        network[grid](*boxes, rows, layers, tile, half, stages, num_warps=WARPS)
        return out

    return step
