"""Heats the device with matrix products for as many seconds as each line of stdin says; rests where it is negative.

    python -m tools.selftest.heater

Answers each line with `done`, and ends with its stdin. Its process has a CUDA context of its own, so that nothing of it
is in the session whose blocks it comes between.
"""

import sys
import time

import torch

WIDTH = {"cuda": 8192, "cpu": 256}
A_TIME = {"cuda": 8, "cpu": 1}  # products between two looks at the clock: about 10 ms on an H200


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    width = WIDTH[device]
    a = torch.randn(width, width, device=device, dtype=torch.bfloat16)
    out = torch.empty_like(a)
    for line in sys.stdin:
        seconds = float(line)
        until = time.monotonic() + abs(seconds)
        while seconds > 0 and time.monotonic() < until:
            for _ in range(A_TIME[device]):
                torch.matmul(a, a, out=out)
            if device == "cuda":
                torch.cuda.synchronize()
        time.sleep(max(0.0, until - time.monotonic()))
        print("done", flush=True)


if __name__ == "__main__":
    main()
