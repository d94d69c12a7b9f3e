"""What vendors promise for a GPU: the peaks to hold a result against until this machine's own have been measured.

Rates are dense (no 2:4 sparsity), of the matrix units where the type has them, at the boost clock that is quoted. On
GeForce cards bf16 and fp16 are with fp32 accumulation, fp8 with the faster fp16 one. Figures were checked against
reprints of the documents named; what could not be checked is None, or named in `source`. A board that is not listed has
no datasheet, rather than that of its nearest relative.
"""

import re
from dataclasses import dataclass

# Payload of 16 lanes one way: GT/s x 16 lanes / 8 bits x line code (128b/130b).
PCIE_3 = 8e9 * 2 * 128 / 130
PCIE_4 = 2 * PCIE_3
PCIE_5 = 4 * PCIE_3
PCIE_6 = 128e9  # nominal: 64 GT/s, framing not taken off

KIB, MIB = 2**10, 2**20
GEFORCE_FP64 = 1 / 64  # of the fp32 rate, on every chip from GA102 to GB202

A100 = "NVIDIA A100 datasheet and Ampere whitepaper, https://www.nvidia.com/en-us/data-center/a100/"
H100 = "NVIDIA H100 datasheet and Hopper whitepaper, https://www.nvidia.com/en-us/data-center/h100/"
H200 = "NVIDIA H200 datasheet, https://www.nvidia.com/en-us/data-center/h200/"
HGX = "NVIDIA HGX datasheet, https://www.nvidia.com/en-us/data-center/hgx/"
GB200 = "NVIDIA GB200 NVL72 page, rack figures over 72 GPUs, https://www.nvidia.com/en-us/data-center/gb200-nvl72/"
GB300 = "NVIDIA GB300 NVL72 page, rack figures over 72 GPUs, https://www.nvidia.com/en-us/data-center/gb300-nvl72/"
GB10 = "NVIDIA DGX Spark page and Hot Chips 2025 talk, https://www.nvidia.com/en-us/products/workstations/dgx-spark/"
GA102 = (
    "NVIDIA Ampere GA102 whitepaper, appendix A, "
    "https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf"
)
ADA = "NVIDIA Ada whitepaper, appendix A, https://www.nvidia.com/en-us/geforce/ada-lovelace-architecture/"
RTX_BLACKWELL = (
    "NVIDIA RTX Blackwell whitepaper, https://www.nvidia.com/en-us/geforce/graphics-cards/50-series/rtx-5090/"
)

MI300X = "AMD Instinct MI300X data sheet, https://www.amd.com/en/products/accelerators/instinct/mi300/mi300x.html"


@dataclass(frozen=True, kw_only=True)
class Datasheet:
    """One board. Bytes, bytes/s, FLOP/s (OP/s for int8) and watts; memory in GB of 1e9 bytes, as sold."""

    name: str
    reported: tuple[str, ...]  # as NVML reports it, less vendor and brand words
    memory_gb: float
    hbm: float
    rates: dict[str, float]
    nvlink: float | None  # one way, all links of one GPU
    pcie: float | None  # one way
    power_w: float
    l2_bytes: int | None  # the last cache before memory
    source: str


def _tera(**rates: float) -> dict[str, float]:
    return {dtype: rate * 1e12 for dtype, rate in rates.items()}


AMPERE_RATES = _tera(fp64=19.5, fp32=19.5, tf32=156, bf16=312, fp16=312, int8=624)
HOPPER_RATES = _tera(fp64=66.9, fp32=66.9, tf32=494.7, bf16=989.4, fp16=989.4, fp8=1978.9, int8=1978.9)

DATASHEETS = (
    Datasheet(
        name="A100 SXM 40GB",
        reported=("A100-SXM4-40GB",),
        memory_gb=40,
        hbm=1.555e12,
        rates=AMPERE_RATES,
        nvlink=300e9,
        pcie=PCIE_4,
        power_w=400,
        l2_bytes=40 * MIB,
        source=A100,
    ),
    Datasheet(
        name="A100 SXM 80GB",
        reported=("A100-SXM4-80GB",),
        memory_gb=80,
        hbm=2.039e12,
        rates=AMPERE_RATES,
        nvlink=300e9,
        pcie=PCIE_4,
        power_w=400,
        l2_bytes=40 * MIB,
        source=A100,
    ),
    Datasheet(
        name="H100 SXM",
        reported=("H100 80GB HBM3",),
        memory_gb=80,
        hbm=3.35e12,
        rates=HOPPER_RATES,
        nvlink=450e9,
        pcie=PCIE_5,
        power_w=700,
        l2_bytes=50 * MIB,
        source=H100,
    ),
    Datasheet(
        name="H100 PCIe",
        reported=("H100 PCIe",),
        memory_gb=80,
        hbm=2.0e12,
        rates=_tera(fp64=51, fp32=51, tf32=378, bf16=756, fp16=756, fp8=1513, int8=1513),
        nvlink=300e9,
        pcie=PCIE_5,
        power_w=350,
        l2_bytes=50 * MIB,
        source=H100 + "; tf32, fp8 and int8 follow from the checked bf16 rate; NVLink (with a bridge) not rechecked",
    ),
    Datasheet(
        name="H200",
        reported=("H200",),
        memory_gb=141,
        hbm=4.8e12,
        rates=HOPPER_RATES,
        nvlink=450e9,
        pcie=PCIE_5,
        power_w=700,
        l2_bytes=50 * MIB,
        source=H200,
    ),
    Datasheet(
        name="B200",
        reported=("B200",),
        memory_gb=180,
        hbm=8e12,
        rates=_tera(fp64=37, fp32=75, tf32=1125, bf16=2250, fp16=2250, fp8=4500, fp4=9000, int8=4500),
        nvlink=900e9,
        pcie=PCIE_5,
        power_w=1000,
        l2_bytes=129536 * KIB,
        source=HGX + "; memory is quoted at 7.7 and at 8 TB/s, L2 as CUDA reports it",
    ),
    Datasheet(
        name="B300",
        reported=("B300", "B300 SXM6 AC"),
        memory_gb=288,
        hbm=8e12,
        rates=_tera(fp64=1.25, fp32=75, tf32=1125, bf16=2250, fp16=2250, fp8=4500, fp4=14000, int8=150),
        nvlink=900e9,
        pcie=PCIE_6,
        power_w=1100,
        l2_bytes=126 * MIB,
        source=HGX + "; fp4 is quoted from 13 to 14 PFLOP/s, memory at 7.7 and at 8 TB/s",
    ),
    Datasheet(
        name="GB200",
        reported=("GB200",),
        memory_gb=186,
        hbm=8e12,
        rates=_tera(fp64=40, fp32=80, tf32=1250, bf16=2500, fp16=2500, fp8=5000, fp4=10000, int8=5000),
        nvlink=900e9,
        pcie=None,
        power_w=1200,
        l2_bytes=129536 * KIB,
        source=GB200 + "; fp64, fp32 and memory size not rechecked; the host is reached through NVLink-C2C, not PCIe",
    ),
    Datasheet(
        name="GB300",
        reported=("GB300",),
        memory_gb=279,
        hbm=8e12,
        rates=_tera(fp32=80, tf32=1250, bf16=2500, fp16=2500, fp8=5000, fp4=15000, int8=165),
        nvlink=900e9,
        pcie=None,
        power_w=1400,
        l2_bytes=126 * MIB,
        source=GB300 + "; the host is reached through NVLink-C2C, not PCIe",
    ),
    Datasheet(
        name="GB10",
        reported=("GB10",),
        memory_gb=128,
        hbm=273e9,
        rates=_tera(fp32=31, fp4=500),
        nvlink=None,
        pcie=None,
        power_w=140,
        l2_bytes=None,
        source=GB10 + "; memory is shared with the CPU; no other rate is published",
    ),
    Datasheet(
        name="RTX 3090",
        reported=("RTX 3090",),
        memory_gb=24,
        hbm=936e9,
        rates=_tera(fp64=35.6 * GEFORCE_FP64, fp32=35.6, tf32=35.6, bf16=71.2, fp16=71.2, int8=284.7),
        nvlink=56.25e9,
        pcie=PCIE_4,
        power_w=350,
        l2_bytes=6 * MIB,
        source=GA102 + "; int8 and NVLink not rechecked",
    ),
    Datasheet(
        name="RTX 4090",
        reported=("RTX 4090",),
        memory_gb=24,
        hbm=1.008e12,
        rates=_tera(fp64=82.6 * GEFORCE_FP64, fp32=82.6, tf32=82.6, bf16=165.2, fp16=165.2, fp8=660.6, int8=660.6),
        nvlink=None,
        pcie=PCIE_4,
        power_w=450,
        l2_bytes=72 * MIB,
        source=ADA,
    ),
    Datasheet(
        name="RTX 5090",
        reported=("RTX 5090",),
        memory_gb=32,
        hbm=1.792e12,
        rates=_tera(
            fp64=104.8 * GEFORCE_FP64, fp32=104.8, tf32=104.8, bf16=209.5, fp16=209.5, fp8=838, fp4=1676, int8=838
        ),
        nvlink=None,
        pcie=PCIE_5,
        power_w=575,
        l2_bytes=96 * MIB,
        source=RTX_BLACKWELL + "; int8 not rechecked",
    ),
    Datasheet(
        name="A10G",
        reported=("A10G",),
        memory_gb=24,
        hbm=600e9,
        rates=_tera(fp32=31.5, tf32=35, bf16=70, fp16=70, int8=140),
        nvlink=None,
        pcie=PCIE_4,
        power_w=300,
        l2_bytes=6 * MIB,
        source="AWS G5 page, https://aws.amazon.com/ec2/instance-types/g5/; rates and power not rechecked",
    ),
    Datasheet(
        name="L4",
        reported=("L4",),
        memory_gb=24,
        hbm=300e9,
        rates=_tera(fp64=30.3 * GEFORCE_FP64, fp32=30.3, tf32=60, bf16=121, fp16=121, fp8=242.5, int8=242.5),
        nvlink=None,
        pcie=PCIE_4,
        power_w=72,
        l2_bytes=48 * MIB,
        source="NVIDIA L4 datasheet, https://www.nvidia.com/en-us/data-center/l4/",
    ),
    Datasheet(
        name="L40S",
        reported=("L40S",),
        memory_gb=48,
        hbm=864e9,
        rates=_tera(fp64=91.6 * GEFORCE_FP64, fp32=91.6, tf32=183, bf16=362, fp16=362, fp8=733, int8=733),
        nvlink=None,
        pcie=PCIE_4,
        power_w=350,
        l2_bytes=96 * MIB,
        source="NVIDIA L40S datasheet, https://www.nvidia.com/en-us/data-center/l40s/",
    ),
    Datasheet(
        name="T4",
        reported=("T4",),
        memory_gb=16,
        hbm=320e9,
        rates=_tera(fp64=8.1 / 32, fp32=8.1, fp16=65, int8=130),
        nvlink=None,
        pcie=PCIE_3,
        power_w=70,
        l2_bytes=4 * MIB,
        source="NVIDIA T4 datasheet, https://www.nvidia.com/en-us/data-center/tesla-t4/",
    ),
    Datasheet(
        name="MI300X",
        reported=("MI300X", "MI300X OAM"),
        memory_gb=192,
        hbm=5.3e12,
        rates=_tera(fp64=163.4, fp32=163.4, tf32=653.7, bf16=1307.4, fp16=1307.4, fp8=2614.9, int8=2614.9),
        nvlink=448e9,
        pcie=PCIE_5,
        power_w=750,
        l2_bytes=256 * MIB,
        source=MI300X + "; links are Infinity Fabric, the cache is Infinity Cache; fp64, tf32, int8 not rechecked",
    ),
)

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
