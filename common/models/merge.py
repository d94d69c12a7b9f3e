"""The last step of attention whose keys are split among programs."""

# mypy: disable-error-code="no-untyped-def"

import triton
import triton.language as tl


@triton.jit
def merge(sums_of, logs_of, out, group, parts, WIDTH: tl.constexpr, PARTS: tl.constexpr):
    """The attention of one query to all keys: that to the parts, weighted by their totals. Grid: (group, heads).

    sums_of (heads, parts, group, WIDTH), logs_of (heads, parts, group): base 2; out (heads, group, WIDTH). PARTS is a
    power of 2, `parts` or more.
    """
    query, head, part = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.arange(0, PARTS)
    slot, live, column = (head * parts + part) * group + query, part < parts, tl.arange(0, WIDTH)
    logs = tl.load(logs_of + slot, mask=live, other=float("-inf"))
    weights = tl.exp2(logs - tl.max(logs, axis=0))
    sums = tl.load(sums_of + slot[:, None] * WIDTH + column[None, :], mask=live[:, None], other=0.0)
    merged = tl.sum(sums * weights[:, None], axis=0) / tl.sum(weights, axis=0)
    tl.store(out + (head * group + query) * WIDTH + column, merged)
