"""A log-mel spectrogram call by call: pad, cut frames, FFT, power, mel filters, log; each writes all it makes."""

import math

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

WINDOW, HOP, MELS, RATE = 400, 160, 80, 16000  # as Whisper hears: 25 ms of sound, every 10 ms
BINS = WINDOW // 2 + 1
FLOOR = 1e-6  # of a band's power, 26 dB under the noise: below it an fp32 FFT rounds away what is left


def inputs(draw: Draw, clips: int, frames: int) -> Inputs:
    """Faint noise under a loud tone, 55 dB apart: what the tone loses by rounding shows where only noise is."""
    pitch, at = draw.uniform(clips, 1, low=0.1, high=2.0), torch.arange(frames * HOP, device=draw.device)
    return {"sound": draw.normal(clips, frames * HOP, std=0.01).add_((pitch * at).sin_())}


def filters(like: Tensor) -> Tensor:
    """Slaney's mel scale, linear up to 1000 Hz and logarithmic from there: [MELS, BINS] triangles of one area."""
    top = 15 + 27 * math.log(RATE / 2000) / math.log(6.4)
    mel = torch.linspace(0, top, MELS + 2, dtype=torch.float64, device=like.device)
    hz = torch.where(mel < 15, mel * 200 / 3, 1000 * ((mel - 15) * math.log(6.4) / 27).exp())[:, None]
    at = torch.arange(BINS, dtype=torch.float64, device=like.device) * RATE / WINDOW
    up, down = (at - hz[:-2]) / (hz[1:-1] - hz[:-2]), (hz[2:] - at) / (hz[2:] - hz[1:-1])
    return (torch.minimum(up, down).clamp(min=0) * 2 / (hz[2:] - hz[:-2])).to(like.dtype)


def log_mel(sound: Tensor, window: Tensor, mel: Tensor) -> Tensor:
    spectrum = torch.stft(sound, WINDOW, HOP, window=window, return_complex=True)[..., :-1]
    return (mel @ spectrum.abs() ** 2).clamp(min=FLOOR).log10()


def hann(like: Tensor) -> Tensor:
    return torch.hann_window(WINDOW, dtype=like.dtype, device=like.device)


workload = Workload(
    inputs=inputs,
    reference=lambda sound: log_mel(sound, hann(sound), filters(sound)),
    # An FFT has so few operations that memory bounds it.
    cost=lambda clips, frames: Cost(
        read=4 * clips * frames * HOP, write=4 * clips * frames * MELS, items=clips * frames, unit="frames"
    ),
    sizes={"bench": {"clips": 128, "frames": 3000}, "test": {"clips": 2, "frames": 37}},
    # One element may be off by ten times that: a weak band's logarithm. An fp32 FFT is off by 2e-6, TF32 alone by 3e-3.
    tolerance=3e-4,
)


def prepare(sound: Tensor) -> Step:
    window, mel = hann(sound), filters(sound)

    def step() -> Tensor:
        return log_mel(sound, window, mel)

    return step
