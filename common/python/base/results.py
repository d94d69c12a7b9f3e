"""What a run leaves behind: the artifact schema. Every number of a summary can be recomputed from the samples."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, model_validator

from common.python.base.machine import Machine

SCHEMA_VERSION = 1
CONTROL = "control"  # the baseline prepared a second time
STANDS_APART = "measured on a host that stands apart"
BEFORE, WHILE, AFTER = "before timing", "while timing", "after timing"  # when a proof was made

ClockName = Literal["device", "end_to_end"]
Goal = Literal["speed", "memory"]
Role = Literal["baseline", "optimized", "peer", "control", "ref"]  # ref: what a rung is at --against
Kind = Literal["PyTorch", "Triton", "CUDA"]
Status = Literal["measured", "proven", "built", "unsupported", "failed"]
Scalar = int | float | str | bool
Figure = Scalar | list[Scalar] | dict[str, Scalar]  # of a size: a number, or a model's several
Verdict = Literal["faster", "same", "slower", "smaller", "larger", "inconclusive", "too noisy", "invalid"]


class Model(BaseModel, extra="forbid", defer_build=True):  # built at first use: `list` needs few of them
    """Unknown fields are refused, so that a truncated or foreign file is seen at once."""


def optional(description: str, default: Any = None) -> Any:
    """A field that may be left out."""
    return Field(default=default, description=description)


class Cost(Model):
    """The least that a problem needs of each resource, whatever a variant happens to do. Bytes, FLOPs, counts."""

    model_config = ConfigDict(frozen=True)

    read: float = Field(default=0.0, ge=0, description="bytes of device memory read")
    write: float = Field(default=0.0, ge=0, description="bytes of device memory written")
    flops: float = Field(default=0.0, ge=0)
    dtype: str = optional("rate bounding the flops: fp64 fp32 tf32 bf16 bf16_mma_sync fp16 fp8 fp4 int8 exp2", "fp32")
    pcie_bytes: float = Field(default=0.0, ge=0, description="the busier direction")
    nvlink_bytes: float = Field(default=0.0, ge=0, description="one way, per GPU")
    disk_bytes: float = Field(default=0.0, ge=0)
    host_bytes: float = Field(default=0.0, ge=0, description="host memory, read plus written")
    launches: int = Field(default=0, ge=0)
    passes: int = Field(default=1, ge=1, description="steps in turn that each need the tensors: decoding, training")
    items: float = Field(default=0.0, ge=0, description="units of work in a step, for throughput")
    unit: str = optional("what an item is: tokens, images", "")

    @model_validator(mode="before")
    @classmethod
    def _of_older_file(cls, stored: Any, info: ValidationInfo) -> Any:
        """An older file has the sum of bytes read and written, `hbm_bytes`, which becomes `read`."""
        both = info.mode == "json" and isinstance(stored, dict) and stored.pop("hbm_bytes", None)
        return {**stored, "read": both} if both else stored

    @property
    def hbm(self) -> float:
        """Bytes of device memory, read plus written."""
        return self.read + self.write


class Limit(Model):
    """The least time that the machine allows for a cost, and the resource that binds it."""

    us: float
    resource: str
    peak: float
    unit: str
    source: str = Field(description="where the peak is from: a datasheet or this machine's measurement")


class Proof(Model):
    """One comparison with the float64 reference (or the reason why it could not be made)."""

    size: str
    when: Literal["before timing", "while timing", "after timing"]
    error: float | None = optional("normwise relative error; the largest over the outputs")
    reason: str | None = optional("why it failed; null when it passed")


class Telemetry(Model):
    """The GPU as NVML saw it; null is what NVML refused."""

    sm_mhz: float | None = None
    memory_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttle: list[str] = []
    other_processes: int | None = None


class Sample(Model):
    """One timing, divided by the steps it held. Microseconds."""

    variant: str
    device_us: float | None
    wall_us: float | None
    host_us: float = Field(description="until the call returned, the device perhaps still at work")
    fresh: bool = optional("proven, and on inputs that no call had seen before", False)
    late: bool = optional("begun before the host had enqueued it whole: its time is in it", False)


class Block(Model):
    """Samples in the order taken, each variant twice, mirrored, so that drift falls on all alike.

    Or once, where it is long, or the host was late for the other.
    """

    round: int
    steps: int = Field(description="back-to-back steps in one sample")
    samples: list[Sample]
    walls: list[Sample] = optional("end-to-end companions of a round's first device samples, outside the headline", [])
    telemetry: Telemetry | None = optional("as read behind it or a later block of its round; of several GPUs the worst")
    gpus: list[Telemetry] = optional("where ranks are on several GPUs, each one's, by rank", [])
    late: int = optional("device samples that began before the host had enqueued them whole", 0)
    retaken: int = optional("more of those, left out: taken again, or beside one that did not", 0)
    paces: list[float] = optional("a fixed loop on the host, before and after; microseconds", [])
    waited_us: float = optional("for a core, all threads of the worker; 0 beside no other work", 0.0)
    discarded: str | None = optional("why the block does not count")

    def times(self, variant: str, clock: ClockName, fresh: bool | None = None) -> list[float]:
        """A variant's times on a clock, in microseconds, as taken; `fresh` asks for those on new inputs, or on seen."""
        on_device = clock == "device"
        own = (s for s in self.samples + self.walls * (not on_device) if s.variant == variant)
        found = (s.device_us if on_device else s.wall_us for s in own if fresh in (None, s.fresh))
        return [us for us in found if us is not None]


class Spread(Model):
    """Times of one variant over all its samples, in microseconds."""

    n: int
    mean: float
    std: float
    median: float
    q1: float
    q3: float
    p95: float
    p99: float
    outliers: int = Field(description="beyond 3 interquartile ranges of the quartiles; counted, never dropped")


class Interval(Model):
    """A ratio with its 95% t interval over rounds; end to end as well as another run on such a host would know it."""

    ratio: float
    low: float
    high: float
    rounds: int

    @classmethod
    def point(cls, ratio: float) -> "Interval":
        """A ratio that repeats exactly, as one of bytes mostly does."""
        return cls(ratio=ratio, low=ratio, high=ratio, rounds=0)


class Why(Model):
    """What one untimed, profiled step did."""

    kernels: int | None = None
    operators: int = 0
    syncs: int = 0
    copied_bytes: float = 0.0
    busy_us: float | None = optional("union of kernel and copy times on the device")
    stream_us: float | None = optional("the same of the busiest stream alone")
    wall_us: float | None = optional("of an older file, and unused")
    staged_us: float = optional("of an older file, and unused", 0.0)
    peak_bytes: float | None = optional("device memory at the variant's peak, inputs aside; reserved where isolated")
    top: list[str] = optional("the longest kernels (operators on a CPU), by time", [])
    metrics: dict[str, float] = optional("by name and unit: of the variant, torch.compile, graphs and ranks", {})


class SpeedOfLight(Model):
    """How hard the kernels of one step drove the GPU, by ncu: percentages are means weighted by the kernels' times."""

    dram_percent: float = Field(description="DRAM throughput, of its peak")
    sm_percent: float = Field(description="the busiest pipeline of the SMs, of its peak")
    occupancy_percent: float = Field(description="warps on an SM that has any, of the most it can hold")
    kernel_us: float = Field(description="sum of the kernels' times, each run by itself with flushed caches")
    read_bytes: float = Field(description="from DRAM")
    written_bytes: float = Field(description="to DRAM")
    kernels: int = Field(description="launches that these figures are of")


class Trio(Model):
    """Times of a step on inputs that it has seen, and on new ones, each after an untimed call. Microseconds."""

    untouched_us: float = Field(description="inputs as the call before found them")
    same_us: float = Field(description="overwritten with the values that they held")
    new_us: float = Field(description="overwritten with new values of the same distribution")


class VariantResult(Model):
    name: str = Field(description="file stem: optimized_transpose__padded")
    role: Role
    label: str = Field(description="baseline, optimized, or the rung's or peer's own name")
    file: str
    sentence: str
    kinds: list[Kind]
    status: Status
    reason: str | None = None
    verdict: Verdict | None = None
    speedup: Interval | None = optional("baseline time over this variant's")
    memory_ratio: float | None = optional("baseline peak over this variant's")
    against: Interval | None = optional(
        "time at --against's commit or Python over this variant's; bytes over bytes if memory is the goal"
    )
    device: Spread | None = None
    wall: Spread | None = None
    percent_of_limit: float | None = None
    rates: dict[str, float] = optional("achieved, in the field's units: GB/s, TFLOP/s, tokens/s", {})
    prepare_s: float | None = optional("of the first prepare at this size")
    first_call_s: float | None = None
    proofs: list[Proof] = []
    why: Why | None = None
    trios: list[Trio] = optional("of a variant whose samples on new inputs took longer", [])
    speed_of_light: SpeedOfLight | None = optional("with --profile, where ncu is found")

    @property
    def sound(self) -> bool:
        """Whether its times may be compared: it was measured, and nothing says that they are of wrong work."""
        return self.status == "measured" and self.verdict not in ("invalid", "too noisy")


class PairResult(Model):
    """One row: a pair on one machine."""

    schema_version: int = SCHEMA_VERSION
    chapter: str
    name: str
    status: Status
    verdict: Verdict | None = None
    reason: str | None = None
    hint: str | None = None
    size: str | None = None
    shape: dict[str, Figure] = {}
    device: str | None = None
    host: str | None = optional("hostname of the machine that it was run on")
    clock: ClockName | None = None
    goal: Goal | None = None
    cost: Cost | None = None
    phases: list[Cost] = optional("where parts of the work cannot overlap, each one's cost", [])
    tolerance: float | None = None
    limit: Limit | None = None
    control: Interval | None = optional("the baseline against a second preparation of itself")
    peer_ratio: Interval | None = optional("best peer's time over the headline's, or bytes where memory is the goal")
    best_peer: str | None = None
    floor_us: float | None = optional("an empty step on the headline clock")
    best_pace_us: float | None = optional(
        "of a fixed loop on the host, in the run so far; at first 1.15 times the best of 40"
    )
    usual_pace_us: float | None = optional("of an older file, and unused")
    pace_deviation: float | None = optional(
        "standard deviation of the log of the host's pace over the blocks of this pair and of those"
    )
    load: float | None = optional("processes at work on the host: the mean of its last minute")
    notes: list[str] = []
    variants: list[VariantResult] = []
    blocks: list[Block] = []
    discarded_blocks: int = 0
    seconds: dict[str, float] = optional("wall time of the session by phase", {})
    seed: int | None = None
    log: str = optional("end of what the workers wrote to stdout and stderr", "")

    @property
    def key(self) -> str:
        return f"{self.chapter}:{self.name}"

    @property
    def on_cpu(self) -> bool:
        return self.device is not None and self.device.lower().startswith("cpu")

    @property
    def baseline(self) -> VariantResult | None:
        return next((row for row in self.variants if row.role == "baseline"), None)

    @property
    def headline(self) -> VariantResult | None:
        """The row that speaks for the pair: `optimized_<name>`, or the last timed rung where that one is not timed."""
        rungs = [row for row in self.variants if row.role == "optimized"]
        own = [row for row in rungs if row.name == f"optimized_{self.name}"]
        able = [row for row in rungs if row.status == "measured"] or [row for row in rungs if row.status == "proven"]
        sure = [row for row in own if row in able or row.status == "failed"]  # no rung hides a headline that failed
        return next(iter(sure or able[-1:] or own or rungs[-1:] or self.variants[:1]), None)

    @property
    def failed(self) -> bool:
        """Whether this pair makes the suite fail: it, or any of its variants, failed or is invalid."""
        rows: list[PairResult | VariantResult] = [self, *self.variants]
        return any(row.status == "failed" or row.verdict == "invalid" for row in rows)

    def trusted(self, row: VariantResult) -> bool:
        """Whether its numbers may be shown: they were measured and nothing says that they are of wrong work."""
        return row.sound and self.status != "failed" and self.verdict not in ("invalid", "too noisy")

    def spread(self, row: VariantResult) -> Spread | None:
        """The variant's times on the clock of the pair."""
        return row.device if self.clock == "device" else row.wall

    def us(self, row: VariantResult | None) -> float | None:
        """The median of those."""
        spread = self.spread(row) if row else None
        return spread.median if spread else None

    def gain(self, row: VariantResult) -> Interval | None:
        """What the variant gains over the baseline: time over time or, where memory is the goal, bytes over bytes."""
        if self.goal != "memory":
            return row.speedup
        return Interval.point(row.memory_ratio) if row.memory_ratio else None


class Manifest(Model):
    """What a result depends on: enough to tell two runs apart."""

    schema_version: int = SCHEMA_VERSION
    started: str
    command: list[str]
    options: dict[str, str | int | float | bool | None]
    targets: list[str]
    machine: Machine
    topology: str | dict[str, Any] | None = optional("how GPUs reach each other, by nvidia-smi; a table in older files")
    versions: dict[str, str | None]
    git_commit: str | None
    git_dirty: bool | None
    sources: dict[str, str] = Field(description="sha256 of every pair file, .cu and harness file")
    environment: dict[str, str]
    seed: int | None
    clocks: str | None = optional("what became of --lock-clocks, an option of older runs")


class Summary(Model):
    schema_version: int = SCHEMA_VERSION
    manifest: Manifest
    finished: str
    seconds: float
    complete: bool = Field(description="false after Ctrl-C, SIGTERM, --fail-fast or a suite timeout")
    interrupted: bool = optional("by Ctrl-C or SIGTERM", False)
    not_run: dict[str, str] = optional("pairs that were asked for and have no row, with why", {})
    origins: dict[str, str] = optional("of a merged run: each pair's folder with manifest and peaks of its own run", {})
    pairs: list[PairResult] = Field(description="without blocks; the samples are with each pair")
