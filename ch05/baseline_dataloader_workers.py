"""DataLoader as it comes: the training process decodes and tokenises each batch itself, and the GPU waits meanwhile."""

import zlib
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import layer_norm
from torch.utils.data import DataLoader, Dataset

from common.python.workload import Cost, Draw, Inputs, Step, Workload

SYLLABLES = [f"{consonant}{vowel}" for consonant in "bdkl" for vowel in "aeiu"]
WORDS = ["".join(parts).encode() for parts in product(SYLLABLES, repeat=3)]  # 4096 of them
VOCABULARY = {word: token for token, word in enumerate(WORDS)}
BATCH = 2  # texts


class Texts(Dataset[Tensor]):
    """Compressed texts, a file each, as tokens. Worker processes read the files, which may change between epochs."""

    def __init__(self, files: list[Path]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Tensor:
        words = zlib.decompress(self.files[index].read_bytes()).split()
        return torch.tensor([VOCABULARY[word] for word in words])


def inputs(draw: Draw, texts: int, length: int, width: int, layers: int) -> Inputs:
    files = []
    for index, tokens in enumerate(draw.host.integers(texts, length, high=len(WORDS)).tolist()):
        text = zlib.compress(b" ".join([WORDS[token] for token in tokens]), level=1)
        files.append(draw.file(f"texts/{index}.z", torch.frombuffer(bytearray(text), dtype=torch.uint8)))
    return {
        "files": files,
        "table": draw.normal(len(WORDS), width),
        "gains": draw.uniform(layers, width, low=0.5, high=1.0),
        "head": draw.normal(width, std=width**-0.5),
    }


def scores(tokens: Tensor, table: Tensor, gains: Tensor, head: Tensor) -> Tensor:
    """A number for each token of [texts, length]; every layer mixes a token with the one before it."""
    x = table[tokens]
    for gain in gains:
        x = layer_norm(x + gain * x.roll(1, dims=1), gain.shape)
    return x @ head


def reference(files: list[Path], table: Tensor, gains: Tensor, head: Tensor) -> Tensor:
    texts = Texts(files)
    return torch.cat([scores(texts[i][None].to(table.device), table, gains, head) for i in range(len(files))])


def cost(texts: int, length: int, width: int, layers: int) -> Cost:
    """Token ids are read and sent. Decoding is the CPU's work, and no count of a layer norm's FLOPs is the least."""
    tokens = texts * length
    return Cost(pcie_bytes=8 * tokens, host_bytes=8 * tokens, items=tokens, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # Few wide layers: the launches of many narrow ones take the host as long as the GPU takes to work them off.
        "bench": {"texts": 64, "length": 2048, "width": 4096, "layers": 4},
        "cpu": {"texts": 32, "length": 1024, "width": 16, "layers": 1},
        "test": {"texts": 11, "length": 37, "width": 24, "layers": 2},  # the last batch is not whole
    },
    tolerance=1e-5,
    rungs="pinned workers pinned_workers bytes",
    frozen=("table", "gains", "head"),
    clock="end_to_end",
)


def epoch(batches: Iterable[Tensor], table: Tensor, gains: Tensor, head: Tensor) -> Tensor:
    """The scores of all texts. Batches in pageable memory are copied as usual: the host waits for the GPU's work."""
    found = []
    for tokens in batches:
        on_device = tokens.to(table.device, non_blocking=tokens.is_pinned())
        found.append(scores(on_device, table, gains, head))
    return torch.cat(found)


def prepare(files: list[Path], table: Tensor, gains: Tensor, head: Tensor) -> Step:
    loader = DataLoader(Texts(files), BATCH)

    def step() -> Tensor:
        return epoch(loader, table, gains, head)

    return step
