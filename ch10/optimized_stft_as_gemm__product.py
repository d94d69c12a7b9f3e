"""Does not pay on an H200: frames times a table of sines on tensor cores, each fp32 number as two in fp16."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch10.baseline_stft_as_gemm import BINS, FLOOR, HOP, MELS, WINDOW, filters, hann
from ch10.baseline_stft_as_gemm import workload as workload
from common.python.workload import Step

DEPTH, WIDTH, SCALE = 224, 256, 64.0  # half a window and all bins, padded; the scale keeps remainders from underflow


@triton.jit
def times(x, table, low_table):
    """Three products of fp16 numbers give 22 bits: what both low parts would add is below them."""
    high = x.to(tl.float16)
    low = (x - high.to(tl.float32)).to(tl.float16)
    return tl.dot(high, table, tl.dot(high, low_table, tl.dot(low, table)))


@triton.jit
def spectrogram(
    sound, tables, mel, out, frames, WINDOW: tl.constexpr, HOP: tl.constexpr, MELS: tl.constexpr, SCALE: tl.constexpr,
    DEPTH: tl.constexpr, WIDTH: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, B: tl.constexpr,
    FLOOR: tl.constexpr,
):  # fmt: skip
    clip, frame, band = tl.program_id(1).to(tl.int64), tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, B)
    here, samples, mask = sound + clip * frames * HOP, frames * HOP, (frame < frames)[:, None]
    total = tl.zeros((M, B), tl.float32)
    for start in range(0, WIDTH, N):
        bin = start + tl.arange(0, N)
        real, imaginary = tl.zeros((M, N), tl.float32), tl.zeros((M, N), tl.float32)
        for first in range(0, DEPTH, K):
            n = first + tl.arange(0, K)
            # Cosine and window are even about the middle of a frame, and sine is odd: both halves share a row.
            left = frame[:, None] * HOP - WINDOW // 2 + 1 + n[None, :]
            right = frame[:, None] * HOP + WINDOW // 2 - 1 - n[None, :]
            right = tl.where(right < samples, right, 2 * samples - 2 - right)  # reflected at the ends, as in stft
            a = tl.load(here + tl.abs(left), mask, 0.0) * SCALE
            b = tl.load(here + tl.abs(right), mask, 0.0) * SCALE
            at = tables + n[:, None] * WIDTH + bin[None, :]
            size: tl.constexpr = DEPTH * WIDTH
            real += times(a + b, tl.load(at), tl.load(at + size))
            imaginary += times(a - b, tl.load(at + 2 * size), tl.load(at + 3 * size))
        power = (real * real + imaginary * imaginary) / (SCALE * SCALE)
        triangles = tl.load(mel + bin[:, None] * B + band[None, :])
        total += tl.dot(power, triangles, input_precision="tf32x3")
    heard = tl.log2(tl.maximum(total, FLOOR)) * 0.30102999566398120  # log10(2)
    place = out + (clip * MELS + band[None, :]) * frames + frame[:, None]
    tl.store(place, heard, mask & (band < MELS)[None, :])


def tables_of(sound: Tensor) -> Tensor:
    """[4, DEPTH, WIDTH]: window times cosine, its remainder, window times sine, its remainder."""
    wide = {"dtype": torch.float64, "device": sound.device}
    n, bins = torch.arange(1, WINDOW // 2 + 1, **wide)[:, None], torch.arange(BINS, **wide)
    window = hann(n)[1 : WINDOW // 2 + 1, None].clone()
    window[-1] /= 2  # the middle is its own mirror image, and is added twice
    turn, tables = 2 * torch.pi / WINDOW * n * bins, sound.new_zeros(4, DEPTH, WIDTH, dtype=torch.float16)
    for place, wave in ((0, turn.cos()), (2, turn.sin())):
        high = (window * wave).half()
        tables[place, : len(n), :BINS], tables[place + 1, : len(n), :BINS] = high, (window * wave - high).half()
    return tables


def prepare(sound: Tensor) -> Step:
    clips, frames = len(sound), sound.shape[1] // HOP
    tables, mel = tables_of(sound), sound.new_zeros(WIDTH, triton.next_power_of_2(MELS))
    mel[:BINS, :MELS] = filters(sound).T
    out, grid = sound.new_empty(clips, MELS, frames), (triton.cdiv(frames, 64), clips)
    numbers = (WINDOW, HOP, MELS, SCALE, DEPTH, WIDTH, 64, 64, 32, mel.shape[1], FLOOR)

    def step() -> Tensor:
        spectrogram[grid](sound, tables, mel, out, frames, *numbers, num_warps=4, num_stages=2)
        return out

    return step
