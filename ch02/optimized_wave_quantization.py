"""The tiles of the last wave are cut along k and shared by all multiprocessors; a second kernel adds the pieces."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch02.baseline_wave_quantization import descriptors, tile
from ch02.baseline_wave_quantization import workload as workload
from common.python.workload import Step

ROWS = 4  # of a tile, for each program that adds pieces
MOST = 16  # pieces of a tile: each leaves a tile of fp32 sums in memory


@triton.jit
def product(
    a,
    b,
    out,
    partial,
    m,
    n,
    k,
    whole,
    span,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Programs below `whole` make a tile each; the others make a piece of one, `span` steps along k."""
    program, tiles_m, tiles_n, steps = tl.program_id(0), tl.cdiv(m, M), tl.cdiv(n, N), tl.cdiv(k, K)
    number, first, last = program, 0, steps
    piece = program - whole
    if piece >= 0:
        pieces = tl.cdiv(steps, span)
        number = whole + piece // pieces
        first = piece % pieces * span
        last = min(first + span, steps)
    i, j = tl.swizzle2d(number // tiles_n, number % tiles_n, tiles_m, tiles_n, GROUP)
    total = tl.zeros((M, N), tl.float32)
    for step in range(first, last):
        x, y = a.load([i * M, step * K]), b.load([j * N, step * K])  # beyond the edges there are zeros
        total = tl.dot(x, y.T, total)
    if piece < 0:
        out.store([i * M, j * N], total.to(out.dtype))
    else:
        place = partial + piece * M * N + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
        tl.store(place, total)


@triton.jit
def add_pieces(
    partial,
    out,
    m,
    n,
    whole,
    pieces,
    M: tl.constexpr,
    N: tl.constexpr,
    GROUP: tl.constexpr,
    PIECES: tl.constexpr,
    ROWS: tl.constexpr,
):
    tail, tiles_m, tiles_n = tl.program_id(1), tl.cdiv(m, M), tl.cdiv(n, N)
    number = whole + tail
    i, j = tl.swizzle2d(number // tiles_n, number % tiles_n, tiles_m, tiles_n, GROUP)
    piece, row = tl.arange(0, PIECES)[:, None, None], tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, N)
    place = partial + ((tail * pieces + piece) * M + row[None, :, None]) * N + column[None, None, :]
    total = tl.sum(tl.load(place, mask=piece < pieces, other=0.0), axis=0)  # all pieces in flight at once
    row, column = i * M + row, j * N + column
    at = out + row.to(tl.int64)[:, None] * n + column[None, :]
    tl.store(at, total.to(out.dtype.element_ty), mask=(row < m)[:, None] & (column < n)[None, :])


def prepare(a: Tensor, b: Tensor) -> Step:
    (m, k), n = a.shape, len(b)
    out, options = a.new_empty(m, n), tile()
    matrices, tall, wide = descriptors(a, b, out, options), options["M"], options["N"]
    tiles, steps = triton.cdiv(m, tall) * triton.cdiv(n, wide), triton.cdiv(k, options["K"])
    # Six in the interpreter: two of the test's eight tiles are left over, and have three pieces each.
    processors = 6 if triton.knobs.runtime.interpret else torch.cuda.get_device_properties().multi_processor_count
    tail = tiles % processors
    span = triton.cdiv(steps, max(1, min(processors // max(tail, 1), MOST, steps)))
    pieces = triton.cdiv(steps, span)
    tail = tail if pieces > 1 else 0  # over half a wave is left as it is
    whole = tiles - tail
    partial = a.new_empty(max(tail * pieces, 1), tall, wide, dtype=torch.float32)
    place = {"M": tall, "N": wide, "GROUP": options["GROUP"], "ROWS": ROWS}

    def step() -> Tensor:
        product[(whole + tail * pieces,)](*matrices, partial, m, n, k, whole, span, **options)
        if tail:
            grid = tall // ROWS, tail
            add_pieces[grid](partial, out, m, n, whole, pieces, PIECES=triton.next_power_of_2(pieces), **place)
        return out

    return step
