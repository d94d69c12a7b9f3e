"""Measured peaks as they are kept: one file for each GPU, good for the driver and the libraries it was measured with.

Limits are made of the best that each resource was seen to do: device memory has a peak for each mix of reads and
writes; a launch is a node of a graph, because a step may be captured; `fp32` is the better of the matrix library and
plain FMAs.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, Field, model_validator

from common.python.base.journal import write
from common.python.base.machine import Machine
from common.python.base.manifest import version_of
from common.python.base.results import Model, optional
from common.python.base.safe_read import read_model
from common.python.performance_targets import Peaks

SCHEMA_VERSION = 2
NO_GPU = "needs a CUDA GPU"
CPU = "cpu"  # stands for the UUID where there is no GPU
LIBRARIES = {
    "torch": "torch",
    "triton": "triton",
    "cuBLAS": "nvidia-cublas",
    "NCCL": "nvidia-nccl-cu13",
    "cuSPARSELt": "nvidia-cusparselt-cu13",
}
ON_CARD = {  # resources of the GPU alone, and the peaks of which each is the best
    "hbm": ("hbm_read", "hbm_write", "hbm_copy", "hbm_triad"),
    "fp32": ("fp32", "fp32_fma"),
    "fp8": ("fp8", "fp8_rowwise"),
    **{name: (name,) for name in ("fp64", "tf32", "bf16", "fp16", "fp4", "int8", "bf16_mma_sync", "exp2")},
}
RESOURCES = {
    **ON_CARD,
    "pcie": ("pcie_to_device", "pcie_to_host"),
    "nvlink": ("nvlink_copy",),
    "host": ("host_read", "host_copy", "host_triad"),
    "disk": ("disk_read", "disk_write"),
    "launch": ("launch_eager", "graph_node"),
}
MOST_SPREAD = 1.1  # best sample over the median of those: 1.05 at most in 24 surveys of H200s, to 2.1 beside others
BETWEEN_GPUS = ("nvlink_copy", "all_reduce")  # peaks that ranks measure, over message sizes
RESOURCE_OF = {name: resource for resource, names in RESOURCES.items() for name in names}

Unit = Literal["B/s", "FLOP/s", "OP/s", "s"]


class Peak(Model):
    """The most that one resource did, or why that is not known."""

    name: str
    unit: Unit
    value: float | None = Field(default=None, gt=0, allow_inf_nan=False, description="median")
    low: float | None = Field(default=None, gt=0, allow_inf_nan=False, description="95% interval of the median")
    high: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    fastest: float | None = Field(default=None, gt=0, allow_inf_nan=False, description="the best single sample")
    sustained: float | None = optional("where power matters, the rate of work without a pause")
    samples: int = Field(default=0, ge=0)
    method: str = ""
    sm_mhz: float | None = optional("during lasting work")
    power_w: float | None = optional("as NVML averages it, on recent GPUs over a second")
    throttle: list[str] = optional("what held the clocks down meanwhile", [])
    reason: str | None = optional("why there is no value")

    @model_validator(mode="after")
    def _whole(self) -> "Peak":
        if (None in (self.value, self.low, self.high, self.fastest)) == (self.reason is None):
            raise ValueError(f"{self.name} must have value, low, high and fastest, or else a reason why not")
        return self


def disturbed(peak: Peak) -> str | None:
    """Why the median of a peak of the GPU alone is not to be believed, if it is far below what one sample showed."""
    if RESOURCE_OF.get(peak.name) not in ON_CARD or not peak.value or not peak.fastest:
        return None
    spread = peak.fastest / peak.value
    if spread <= MOST_SPREAD:
        return None
    return f"its best sample is {spread:.2f} times its median, as when another process uses the GPU"


class Point(Model):
    """Messages of one size: the median time of one and its 95% interval."""

    bytes: int = Field(gt=0, description="of the message, as one rank holds it")
    seconds: float = Field(gt=0, allow_inf_nan=False, description="by the slowest rank")
    low: float = Field(gt=0, allow_inf_nan=False)
    high: float = Field(gt=0, allow_inf_nan=False)


class Curve(Model):
    """The time of one kind of message between GPUs, over its size."""

    name: str = Field(description="that of the peak which its best point is")
    ranks: int = Field(ge=2)
    share: float = Field(gt=0, description="bytes that a link must carry one way, for each byte of the message")
    method: str
    points: list[Point] = Field(min_length=1)
    settings: dict[str, str] = optional("NCCL's and symmetric memory's, in the environment", {})

    def rate(self, point: Point) -> float:
        """Bytes a second that a link carried one way: the bus bandwidth of a collective."""
        return self.share * point.bytes / point.seconds


class Survey(Model):
    """All peaks of one machine with one GPU, measured in one go."""

    schema_version: int = SCHEMA_VERSION
    device: str
    uuid: str
    measured: AwareDatetime
    seconds: float
    versions: dict[str, str | None]
    l2_bytes: float = Field(default=0.0, ge=0, description="the GPU's last cache")
    llc_bytes: float = Field(default=0.0, ge=0, description="retired: the host's last caches together")
    peaks: list[Peak]
    curves: list[Curve] = optional("of the peaks that ranks measured, over message sizes", [])
    commit: str | None = optional("of the run that measured it, where docs/results keeps it")


def versions(driver: str | None, cuda_driver: str | None) -> dict[str, str | None]:
    """What measured peaks depend on, besides the GPU."""
    installed = {name: version_of(package) for name, package in LIBRARIES.items()}
    return {"driver": driver, "CUDA of the driver": cuda_driver, **installed}


def path_of(artifacts_dir: Path, uuid: str) -> Path:
    return artifacts_dir / "peaks" / f"{uuid}.json"


def save(path: Path, survey: Survey) -> None:
    write(path, survey.model_dump_json(indent=1))


def load(path: Path) -> Survey | None:
    """The peaks in a file; None if there is no file. Raises ValueError when it is not a whole file of peaks."""
    if not os.path.lexists(path):
        return None
    try:
        return read_model(path, Survey)
    except ValueError as error:
        raise ValueError(f"{error}; `benchmark_cli peak` measures them again and replaces the file") from error


def known(artifacts_dir: Path, uuid: str, machine: Machine) -> tuple[Survey | None, str]:
    """The stored peaks of a GPU, if they are of these versions, and else why there are none. Raises as `load`."""
    survey = load(path := path_of(artifacts_dir, uuid))
    if survey is None:
        return None, f"there are no peaks in {path}"
    other = difference(survey, uuid, versions(machine.driver, machine.cuda_driver))
    return (None, other) if other else (survey, "")


def difference(survey: Survey, uuid: str, here: Mapping[str, str | None]) -> str | None:
    """Why these peaks are not those of this GPU with these versions; None if they are."""
    if survey.schema_version != SCHEMA_VERSION:
        return f"the stored peaks are of schema {survey.schema_version}, here is {SCHEMA_VERSION}"
    if survey.uuid != uuid:
        return f"the stored peaks are of another GPU, {survey.device} {survey.uuid}"
    for name in {**survey.versions, **here}:
        then, now = survey.versions.get(name), here.get(name)
        if then != now:
            return f"the stored peaks were measured with {name} {then or 'unknown'}, here is {now or 'unknown'}"
    return None


def peaks_of(survey: Survey) -> Peaks:
    """The peaks that limits are made of, with the day they are of; resources without a value are left out."""
    known = {peak.name: peak for peak in survey.peaks if peak.value is not None}
    values, fastest = {}, {}
    for resource, names in RESOURCES.items():
        best = min if resource == "launch" else max
        found = [known[name] for name in names if name in known]
        if found:
            values[resource] = best(peak.value for peak in found if peak.value is not None)
            fastest[resource] = best(peak.fastest for peak in found if peak.fastest is not None)
    return Peaks(
        values=values,
        fastest=fastest,
        mixes={name: peak.value for name, peak in known.items() if name in RESOURCES["hbm"] and peak.value},
        source=f"measured on {survey.measured:%Y-%m-%d}",
        l2_bytes=survey.l2_bytes,
    )
