"""How many ranks a pair on several GPUs has and where they run, in torchrun's words."""

from dataclasses import dataclass

from common.python.base.machine import Machine
from common.python.corpus.discovery import Pair


@dataclass(frozen=True)
class Launch:
    """One host, unless told otherwise: the same command is then given on each, with a node rank of its own.

    Raises ValueError for options that cannot be meant together.
    """

    nnodes: int = 1
    node_rank: int = 0  # the host of node rank 0 leads: it decides, and writes the results
    nproc_per_node: int | None = None  # by default as many as make up the GPUs that a pair asks for
    rdzv_endpoint: str | None = None  # host:port where the leading host listens

    def __post_init__(self) -> None:
        if self.nnodes > 1 and self.rdzv_endpoint is None:
            raise ValueError(f"--nnodes {self.nnodes} needs --rdzv-endpoint HOST:PORT, an address of node rank 0")
        if self.node_rank >= self.nnodes:
            raise ValueError(f"--node-rank {self.node_rank} must be below --nnodes {self.nnodes}")
        if self.rdzv_endpoint is not None:
            host, _, port = self.rdzv_endpoint.rpartition(":")
            if not host or not port.isdecimal() or int(port) >= 1 << 16:
                raise ValueError(f"--rdzv-endpoint {self.rdzv_endpoint} must be HOST:PORT, such as node0:29500")

    @property
    def follows(self) -> bool:
        """Whether another host leads."""
        return self.node_rank > 0

    def ranks_here(self, gpus: int) -> int:
        """Processes on this host for a pair on so many GPUs; 0 for a pair on one, which needs no ranks."""
        return 0 if gpus == 1 else self.nproc_per_node or -(-gpus // self.nnodes)

    def ranks(self, gpus: int) -> int:
        """Of all hosts together."""
        return self.ranks_here(gpus) * self.nnodes

    def unmet(self, pair: Pair, machine: Machine) -> list[str]:
        """Why a pair cannot be started like this on a machine with GPUs, a phrase each; without any, ranks use CPUs."""
        here, reasons = self.ranks_here(pair.gpus), []
        if pair.gpus == 1 and self.nnodes > 1:
            reasons.append("runs on one host: leave --nnodes away")
        elif pair.apart and self.nnodes > 1:
            reasons.append("has ranks for each variant apart, which would all listen at --rdzv-endpoint: use one host")
        elif pair.gpus > 1 and self.ranks(pair.gpus) < pair.gpus:
            reasons.append(f"needs {pair.gpus} ranks, --nproc-per-node {here} gives {self.ranks(pair.gpus)}")
        if machine.gpus and len(machine.gpus) < here:
            reasons.append(f"needs {here} GPUs, found {len(machine.gpus)}")
        return reasons


ONE_HOST = Launch()
