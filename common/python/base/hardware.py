"""What vendors promise for a GPU: the peaks to hold a result against until this machine's own have been measured.

Rates are dense (no 2:4 sparsity), of the matrix units where the type has them, at the boost clock that is quoted. On
GeForce cards bf16 and fp16 are with fp32 accumulation, fp8 with the faster fp16 one. Figures were checked against
reprints of the documents named; what could not be checked is None, or named in `source`. A board that is not listed has
no datasheet, rather than that of its nearest relative. The figures are in datasheets.json.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

KIB = 2**10


@dataclass(frozen=True, kw_only=True)
class Datasheet:
    """One board. Bytes, bytes/s, FLOP/s (OP/s for int8) and watts; memory in GB of 1e9 bytes, as sold."""

    name: str
    reported: list[str]  # as NVML reports it, less vendor and brand words
    memory_gb: float
    hbm: float
    rates: dict[str, float]
    nvlink: float | None  # one way, all links of one GPU
    pcie: float | None  # one way: payload of 16 lanes, GT/s x 16 lanes / 8 bits x line code (128b/130b)
    power_w: float
    l2_bytes: int | None  # the last cache before memory
    source: str


DATASHEETS = tuple(Datasheet(**row) for row in json.loads(Path(__file__).with_name("datasheets.json").read_text()))
BRANDS = {"nvidia", "amd", "geforce", "tesla", "instinct"}
_BY_NAME = {tuple(re.split(r"[\s-]+", alias.lower())): sheet for sheet in DATASHEETS for alias in sheet.reported}


def datasheet(name: str) -> Datasheet | None:
    """The datasheet of a device by the name that NVML or CUDA reports; None for any other, a MIG slice included."""
    words = re.split(r"[\s-]+", name.strip().lower())
    return _BY_NAME.get(tuple(word for word in words if word not in BRANDS))


def file_name(gpu: str) -> str:
    """What files about a GPU are called: `h200` for "NVIDIA H200"."""
    sheet = datasheet(gpu)
    return "".join(letter if letter.isalnum() else "_" for letter in (sheet.name if sheet else gpu).lower())
