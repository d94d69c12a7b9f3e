"""One kernel from sound to bands: two frames are one complex sequence, transformed as 20 x 20 in registers."""

import torch
from torch import Tensor

from ch10.baseline_stft_as_gemm import BINS, MELS, WINDOW, filters, hann
from ch10.baseline_stft_as_gemm import workload as workload
from common.python.cuda import load_cuda
from common.python.workload import Step

SIDE = 20


def prepare(sound: Tensor) -> Step:
    spectrogram = load_cuda(__file__, "spectrogram")
    clips, frames = len(sound), sound.shape[1] // 160
    window, mel = hann(sound) / 2, filters(sound)  # halved, as two frames in one come apart as half of a sum
    at = torch.arange(SIDE, dtype=torch.float64, device=sound.device)
    angle = -2 * torch.pi / WINDOW * at[:, None] * at
    turns = torch.stack([angle.cos(), angle.sin()], 2).to(sound.dtype).contiguous()
    bin, some = torch.arange(BINS, device=sound.device), mel > 0
    first, last = torch.where(some, bin, BINS).amin(1), torch.where(some, bin + 1, 0).amax(1)
    ranges = torch.stack([first, last], 1).to(torch.int32).contiguous()
    out = sound.new_empty(clips, MELS, frames)

    def step() -> Tensor:
        spectrogram(sound, window, turns, mel, ranges, out, clips, frames)
        return out

    return step
