"""All three products on fp8 tensor cores, each operand cast both ways at once, with a scale for each row and column."""

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch19.baseline_fp8_linear_training import casting_errors, noise_like
from ch19.baseline_fp8_linear_training import workload as workload
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(sm=89)
LARGEST = torch.finfo(torch.float8_e4m3fn).max  # 448
Codes = tuple[Tensor, Tensor]  # fp8, and their scales
SIDES = {"ROWS": 128, "COLUMNS": 64, "num_warps": 4}


@triton.jit
def magnitudes(x, of_rows, of_columns, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The largest magnitude of each row and of each column, by atomic maximum."""
    row, column = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    tile = tl.load(x + row.to(tl.int64)[:, None] * columns + column[None, :], mask=mask, other=0.0).to(tl.float32)
    # relaxed: nobody reads them before this kernel ends, and the default brings a fence of the whole GPU each time
    tl.atomic_max(of_rows + row, tl.max(tl.abs(tile), axis=1), mask=row < rows, sem="relaxed")
    tl.atomic_max(of_columns + column, tl.max(tl.abs(tile), axis=0), mask=column < columns, sem="relaxed")


@triton.jit
def scale_of(magnitude, LARGEST: tl.constexpr):
    """The least power of two with which all up to `magnitude` fits; the floor is for rows of zeros."""
    least = tl.maximum(tl.math.div_rn(magnitude, LARGEST), 2.0**-100)
    return ((least.to(tl.int32, bitcast=True) + 0x7FFFFF) & 0x7F800000).to(tl.float32, bitcast=True)  # up to 1.0 x 2^n


@triton.jit
def cast_tile(
    x, of_rows, of_columns, by_row, by_column, out, out_t, rows, columns,
    LARGEST: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The tile in fp8, divided by its rows' scales, and its transpose, divided by its columns' scales."""
    row, column = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    tile = tl.load(x + row.to(tl.int64)[:, None] * columns + column[None, :], mask=mask, other=0.0).to(tl.float32)
    scale = scale_of(tl.load(of_rows + row, mask=row < rows, other=1.0), LARGEST)
    tl.store(by_row + row, scale, mask=(row < rows) & (tl.program_id(0) == 0))
    wise = (tile / scale[:, None]).to(out.dtype.element_ty)
    tl.store(out + row.to(tl.int64)[:, None] * columns + column[None, :], wise, mask=mask)
    scale = scale_of(tl.load(of_columns + column, mask=column < columns, other=1.0), LARGEST)
    tl.store(by_column + column, scale, mask=(column < columns) & (tl.program_id(1) == 0))
    wise = (tile / scale[None, :]).to(out.dtype.element_ty)
    tl.store(out_t + column.to(tl.int64)[:, None] * rows + row[None, :], wise.T, mask=mask.T)


def casts_of(x: Tensor) -> tuple[Callable[[], None], Codes, Codes]:
    """What casts x anew, and where it does: codes and scales along its rows, and transposed, along its columns."""
    rows, columns = x.shape
    shapes = (rows, columns), (columns, rows)
    out, out_t = (x.new_empty(shape, dtype=torch.float8_e4m3fn) for shape in shapes)
    largest, scales = x.new_empty(2, rows + columns, dtype=torch.float32)
    (of_rows, of_columns), (by_row, by_column) = (each.split((rows, columns)) for each in (largest, scales))
    grid = triton.cdiv(columns, SIDES["COLUMNS"]), triton.cdiv(rows, SIDES["ROWS"])

    def refresh() -> None:
        largest.zero_()
        magnitudes[grid](x, of_rows, of_columns, rows, columns, **SIDES)
        cast_tile[grid](x, of_rows, of_columns, by_row, by_column, out, out_t, rows, columns, LARGEST=LARGEST, **SIDES)

    return refresh, (out, by_row), (out_t, by_column)


def product(a: Codes, b: Codes) -> Tensor:
    """a @ b.T of codes with a scale a row: the hardware wants both along the dimension that is summed over."""
    return torch._scaled_mm(a[0], b[0].T, a[1][:, None], b[1][None, :], out_dtype=torch.bfloat16)


def cast_back(x: Tensor) -> tuple[Tensor, Tensor]:
    """Codes times scales: cast along the rows, and along the columns."""
    refresh, (along, by_row), (across, by_column) = casts_of(x)
    refresh()
    return along.float() * by_row[:, None], across.T.float() * by_column


def prepare(x: Tensor, weight: Tensor, slope: Tensor) -> Metered:
    refreshes, along, across = zip(*(casts_of(each) for each in (x, weight, slope)))

    def step() -> tuple[Tensor, ...]:
        for refresh in refreshes:
            refresh()
        return product(along[0], along[1]), product(along[2], across[1]), product(across[2], across[0])

    return Metered(step, lambda: casting_errors(cast_back, *noise_like(x, weight, slope)))
