"""Is this output the answer? One comparison, and the proof that the comparison has teeth.

One number decides: the normwise relative error against a float64 reference. Beside it no element may be further off
than 10 x tolerance x rms(reference), so that one wrong element in a million cannot hide in the norm.
"""

import math
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from common.python.workload import AnyOrder, Output, Part

ELEMENT_FACTOR = 10.0
LEAST_TILE = 16  # elements: of fewer, all may be nearly zero by chance, and no kernel works in smaller tiles
NOT_FINITE = "NaN or infinity where the reference is finite, or the reverse"
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by the bytes of an element
# Elements compared at a time: 128 MiB of float64. On a CPU a cache holds them, and one thread: several would wait for
# each other wherever other work has a core.
CHUNK = {"cuda": 1 << 24, "cpu": 1 << 15}


class Rejected(Exception):
    """An output (or a workload) that cannot be accepted; the message is the reason."""


@dataclass(frozen=True)
class Difference:
    error: float  # normwise relative error, the largest over the leaves
    reason: str | None  # None: accepted


def _parts(output: Output) -> Sequence[Part]:
    return output if isinstance(output, tuple) else [output]


def files_in(output: Output) -> list[Path]:
    return [part for part in _parts(output) if isinstance(part, Path)]


def read_files(output: Output) -> Output:
    """An output with the contents of its files in their place."""
    return tuple(part for one in _parts(output) for part in (_contents(one) if isinstance(one, Path) else [one]))


def _contents(path: Path) -> list[Tensor]:
    """The tensors that torch.save wrote there, or else the bytes."""
    if not path.is_file():
        raise Rejected(f"output is the path {path.name!r}, where no file is")
    if zipfile.is_zipfile(path):
        saved = tree_leaves(torch.load(path, map_location="cpu", weights_only=True))
        return [leaf for leaf in saved if isinstance(leaf, Tensor)]
    return [torch.from_numpy(numpy.fromfile(path, numpy.uint8))]


def leaves(output: Output) -> list[Tensor]:
    """The tensors of an output, refused unless each is a plain, strided tensor that already holds its values."""
    parts = [part.rows if isinstance(part, AnyOrder) else part for part in _parts(output)]
    for part in parts:
        if not isinstance(part, Tensor):
            raise Rejected(f"output is a {type(part).__name__}, not a tensor or a tuple of tensors")
        if type(part) not in (Tensor, torch.nn.Parameter):
            raise Rejected(f"output is a {type(part).__name__}: a subclass may compute when it is read")
        if part.layout is not torch.strided or part.device.type not in ("cpu", "cuda"):
            raise Rejected(f"output is {part.layout} on {part.device}, not a strided tensor in memory")
        if part.is_complex():
            raise Rejected("output is complex: return torch.view_as_real of it, as the reference must too")
    return [part for part in parts if isinstance(part, Tensor)]


def in_order(output: Output, copies: Sequence[Tensor]) -> list[Tensor]:
    """Copies of an output's tensors; rows that may come in any order are sorted, column by column."""
    return [_sorted_rows(copy) if isinstance(part, AnyOrder) else copy for part, copy in zip(_parts(output), copies)]


def _sorted_rows(rows: Tensor) -> Tensor:
    if rows.dim() == 0:
        return rows
    table = rows.reshape(len(rows), -1)
    order = torch.arange(len(rows), device=rows.device)
    for column in reversed(range(table.shape[1])):
        order = order[table[order, column].argsort(stable=True)]
    return rows[order]


def compare(output: list[Tensor], reference: list[Tensor], dtypes: list[torch.dtype], tolerance: float) -> Difference:
    """Hold an output against the float64 reference; the first leaf refused gives the reason, wrong forms before all."""
    if len(output) != len(reference):
        return Difference(float("inf"), f"{len(output)} outputs, the reference has {len(reference)}")
    at = [f"output {index}: " if len(output) > 1 else "" for index in range(len(output))]
    for where, out, ref, dtype in zip(at, output, reference, dtypes):
        if out.shape != ref.shape:
            return Difference(float("inf"), f"{where}shape {tuple(out.shape)}, should be {tuple(ref.shape)}")
        if out.dtype != dtype:
            return Difference(float("inf"), f"{where}dtype {_name(out.dtype)}, should be {_name(dtype)}")
    worst = 0.0
    for where, out, ref in zip(at, output, reference):
        out = out.detach().to(ref.device)
        exact = tolerance == 0.0 or not out.dtype.is_floating_point
        leaf = _compare_exact(out, ref) if exact else _compare_rounded(out, ref, tolerance)
        worst = max(worst, leaf.error)
        if leaf.reason:
            return Difference(worst, where + leaf.reason)
    return Difference(worst, None)


def _compare_rounded(out: Tensor, ref: Tensor, tolerance: float) -> Difference:
    error, size, largest = _norms(out, ref)
    if not math.isfinite(error + size):
        if math.isfinite(size):  # then every element of the reference is
            return Difference(float("inf"), NOT_FINITE)
        if bool(torch.isnan(ref).any()):
            raise Rejected("the reference itself holds NaN")
        infinite = torch.isinf(ref) & (out.double() == ref)  # the same infinity is right
        error, size, largest = _norms(out.double().masked_fill(infinite, 0.0), ref.masked_fill(infinite, 0.0))
        if not math.isfinite(error + size):
            return Difference(float("inf"), NOT_FINITE)
    if size == 0.0:
        return Difference(0.0 if largest == 0.0 else float("inf"), None if largest == 0.0 else "should be all zeros")
    relative = error / size
    allowed = ELEMENT_FACTOR * tolerance * size / max(out.numel(), 1) ** 0.5
    if relative > tolerance:
        return Difference(relative, f"relative error {relative:.2e}, the tolerance is {tolerance:.1e}")
    if largest > allowed:
        return Difference(relative, f"one element is off by {largest:.2e}, at most {allowed:.2e} is allowed")
    return Difference(relative, None)


def _norms(out: Tensor, ref: Tensor) -> list[float]:
    """Norm of the error, norm of the reference, largest error: in float64, NaN or infinite where any element is."""
    if not out.numel():
        return [0.0, 0.0, 0.0]
    norm, parts, chunk = torch.linalg.vector_norm, [], CHUNK[out.device.type]
    out, ref = out.reshape(-1), ref.reshape(-1)
    for start in range(0, out.numel(), chunk):
        a, b = out[start : start + chunk], ref[start : start + chunk].double()
        error = b - (a if a.is_cuda and a.dtype.itemsize > 1 else a.double())  # a GPU widens it as it is read
        parts.append(torch.stack([norm(error), norm(b), *torch.aminmax(error)]))
    chunks = torch.stack(parts)
    whole = [norm(chunks[:, 0]), norm(chunks[:, 1]), chunks[:, 2].min(), chunks[:, 3].max()]
    error_norm, size, least, most = torch.stack(whole).tolist()
    return [error_norm, size, max(-least, most)]


def same(a: Tensor, b: Tensor) -> bool:
    """Whether both have the same shape, dtype, device and bits. NaN equals itself, since inputs may hold it."""
    return (a.shape, a.dtype, a.device) == (b.shape, b.dtype, b.device) and torch.equal(_bits(a), _bits(b))


def _bits(tensor: Tensor) -> Tensor:
    plain = tensor.detach().resolve_conj().resolve_neg()
    return plain.view(BITS.get(plain.dtype.itemsize, plain.dtype))


def fingerprint(found: Sequence[Tensor], device: torch.device, secret: int) -> list[object]:
    """The form of each tensor, and for each chunk of it the sum of its bits times random odd numbers, modulo 2^64.

    One changed element always shows: at most 32 bits of difference times an odd number are not 0. Several hide each
    other by a chance of at most 2^-32, whatever they are, since nobody can foresee `secret`, from which numbers come.
    """
    numbers, sums = torch.empty(CHUNK[device.type], dtype=torch.int64, device=device), list[object]()
    odd = numbers.random_(generator=torch.Generator(device).manual_seed(secret)).mul_(2).add_(1)
    for tensor in found:
        sums += [tensor.shape, tensor.dtype, tensor.device]
        if not tensor.is_meta:
            flat = _bits(tensor).reshape(-1).contiguous()
            whole = flat.nbytes % 4 == flat.storage_offset() * flat.itemsize % 4 == 0  # words of 32 bits, so fewer sums
            parts = (flat.view(torch.int32) if whole else flat).split(len(odd))
            sums += torch.stack([(part.to(device) * odd[: len(part)]).sum() for part in parts]).tolist()
    return sums


def _compare_exact(out: Tensor, ref: Tensor) -> Difference:
    if ref.is_floating_point() and bool(torch.isnan(ref).any()):
        raise Rejected("the reference itself holds NaN")
    if out.dtype.is_floating_point or ref.dtype == out.dtype:
        wrong = int((out != ref.to(out.dtype)).count_nonzero())  # `sum` would widen every byte to an int64
    else:  # a narrowed reference would wrap round to the very value that overflowed
        wide = torch.float64 if ref.dtype.is_floating_point else torch.int64
        wrong = int((out.to(wide) != ref.to(wide)).count_nonzero())
    if not wrong:
        return Difference(0.0, None)
    return Difference(wrong / out.numel(), f"{wrong} of {out.numel()} elements differ, and the answer is exact")


def poison(output: Iterable[Tensor]) -> None:
    """Make what an earlier step left behind unusable: NaN, or the least value of an integer type."""
    with torch.no_grad():
        for leaf in output:
            if leaf.dtype.is_floating_point:
                leaf.detach().fill_(float("nan"))
            elif leaf.dtype is torch.bool:
                leaf.detach().logical_not_()
            else:
                leaf.detach().fill_(torch.iinfo(leaf.dtype).min if leaf.dtype.is_signed else 255)


def poison_files(paths: Iterable[Path]) -> None:
    """The same for files, in place: some steps map them."""
    for path in paths:
        if path.is_file() and path.stat().st_size:
            numpy.memmap(path, mode="r+")[:] = 255


def teeth(reference: list[Tensor], stale: list[Tensor], dtypes: list[torch.dtype], tolerance: float) -> list[str]:
    """The corruptions of a right output that this tolerance would accept; none, if the workload is sound.

    `stale` is the reference of other inputs. A corruption that changes nothing (permuting equal rows) is passed over.
    Raises Rejected when the tolerance refuses the rounded reference itself.
    """
    right = [ref.to(dtype).contiguous() for ref, dtype in zip(reference, dtypes)]
    if reason := compare(right, reference, dtypes, tolerance).reason:
        raise Rejected(f"the tolerance {tolerance:g} refuses even the rounded reference: {reason}")
    accepted = []
    old = [leaf.to(dtype) for leaf, dtype in zip(stale, dtypes)]
    if not all(map(torch.equal, old, right)) and compare(old, reference, dtypes, tolerance).reason is None:
        accepted.append("stale output")
    for index, (leaf, ref, dtype) in enumerate(zip(right, reference, dtypes)):
        for name, corrupt in CORRUPTIONS.items() if leaf.numel() else ():
            bad = corrupt(leaf.clone())
            if bad is None or torch.equal(bad, leaf):
                continue
            if compare([bad], [ref], [dtype], tolerance).reason is None:  # the others are right, as was just seen
                accepted.append(f"{name} (output {index})" if len(right) > 1 else name)
    return accepted


def _one_element(leaf: Tensor) -> Tensor:
    flat = leaf.view(-1)
    if leaf.dtype.is_floating_point:
        finite = flat.double()
        if not math.isfinite(finite.sum()):  # few answers hold what has to be replaced
            finite = torch.nan_to_num(finite, nan=0.0, posinf=0.0, neginf=0.0)
        rms = (finite * finite).mean().sqrt()  # `square` would load one more kernel, 43 ms on an H200
        flat[flat.numel() // 2] = (finite[flat.numel() // 2] + rms).to(leaf.dtype)
    else:
        flat[flat.numel() // 2] = ~flat[flat.numel() // 2]  # of a bool the negation, of an integer -x - 1
    return leaf


def _last_tile(leaf: Tensor) -> Tensor:
    leaf.view(-1)[-max(LEAST_TILE, leaf.numel() // 64) :] = 0
    return leaf


def _one_nan(leaf: Tensor) -> Tensor | None:
    if not leaf.dtype.is_floating_point:
        return None
    leaf.view(-1)[-1] = float("nan")
    return leaf


CORRUPTIONS: dict[str, Callable[[Tensor], Tensor | None]] = {
    "zeros": torch.zeros_like,
    "one wrong element": _one_element,
    "last tile dropped": _last_tile,
    "rows permuted": lambda leaf: leaf.roll(1, 0) if leaf.dim() else None,
    "5% scale": lambda leaf: (leaf.double() * 1.05).to(leaf.dtype) if leaf.dtype.is_floating_point else None,
    "one NaN": _one_nan,
}


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
