"""Chapter 2's two tables: one copy, sum and product on CPU and GPU, and bf16 beside fp16, each measured here.

`python -m tools.benchmarking.cpu_beside_gpu` prints them as Markdown; without a GPU they have the CPU's column alone.
"""

from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch

from common.python.report.markdown import table

ELEMENTS, SIDE, REPEATS = 2**26, 2048, 9


def seconds(work: Callable[[], object], device: str) -> float:
    """Median time of a call by the host's clock, until the device is done: REPEATS after the first, or 5 s."""
    taken: list[float] = []
    while len(taken) <= REPEATS and sum(taken) < 5:
        start = perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        taken.append(perf_counter() - start)
    return median(taken[1:] or taken)


def rates(device: str) -> dict[str, str]:
    """Each task's rate on all cores: of bytes read and written, or of 2 n^3 operations of a product."""
    x = torch.randn(ELEMENTS, device=device)
    out, one, a = torch.empty_like(x), x[:1], torch.randn(SIDE, SIDE, device=device)
    half, gb, tflop = a.bfloat16(), x.nbytes / 1e9, 2 * SIDE**3 / 1e12
    return {
        "add to one number: time of a call": f"{1e6 * seconds(lambda: one.add_(1), device):.1f} us",
        "copy 256 MiB": f"{2 * gb / seconds(lambda: out.copy_(x), device):,.1f} GB/s",
        "sum 256 MiB": f"{gb / seconds(lambda: x.sum(), device):,.1f} GB/s",
        f"fp32 product, {SIDE} a side": f"{tflop / seconds(lambda: a @ a.T, device):.3g} TFLOP/s",
        f"bf16 product, {SIDE} a side": f"{tflop / seconds(lambda: half @ half.T, device):.3g} TFLOP/s",
    }


def formats(device: str, kind: torch.dtype) -> dict[str, float]:
    """What a format of 16 bits does to values that others hold."""
    torch.manual_seed(0)
    a, b = torch.randn(2, 512, 512, dtype=torch.float64).to(device)
    right, given = a @ b.T, (a.to(kind) @ b.to(kind).T).double()
    total = torch.zeros((), dtype=kind, device=device)
    for _ in range(4096):
        total += 1
    return {
        "largest number": torch.finfo(kind).max,
        "smallest number of full precision": torch.finfo(kind).tiny,
        "step from 1 to the next number": torch.finfo(kind).eps,
        **{
            f"{value:,g} becomes": torch.tensor(value, device=device).to(kind).item()
            for value in (70_000.0, 1e-8, 1.001)
        },
        "1 added 4,096 times gives": total.item(),
        "normwise error of a 512 x 512 product": float((given - right).norm() / right.norm()),
    }


def main() -> None:
    devices = {f"CPU, {torch.get_num_threads()} threads": "cpu"}
    if torch.cuda.is_available():
        devices[torch.cuda.get_device_name()] = "cuda"
    columns = [rates(device) for device in devices.values()]
    print(table(["task", *devices], [[task, *(column[task] for column in columns)] for task in columns[0]]))
    for name, device in devices.items():
        bf16, fp16 = (formats(device, kind) for kind in (torch.bfloat16, torch.float16))
        lines = [[what, f"{value:.4g}", f"{fp16[what]:.4g}"] for what, value in bf16.items()]
        print("", table([f"on {name}", "bf16", "fp16"], lines), sep="\n")


if __name__ == "__main__":
    main()
