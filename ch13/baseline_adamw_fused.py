"""AdamW as its formula reads, one tensor at a time: eight kernels each, and every one walks through memory again."""

from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

RATE, DECAY, BETA1, BETA2, EPSILON = 1e-3, 0.1, 0.9, 0.999, 1e-8


def shapes(layers: int, width: int) -> list[tuple[int, ...]]:
    """Weights and biases of a transformer block's four projections and two norms."""
    projections = [(3, 1), (1, 1), (4, 1), (1, 4)]
    block = [shape for out, into in projections for shape in ((out * width, into * width), (out * width,))]
    return (block + [(width,)] * 4) * layers


def inputs(draw: Draw, layers: int, width: int) -> Inputs:
    return {
        "parameters": [draw.normal(*shape) for shape in shapes(layers, width)],
        "gradients": [draw.normal(*shape) for shape in shapes(layers, width)],
        "means": [draw.normal(*shape) for shape in shapes(layers, width)],
        "squares": [draw.uniform(*shape, low=0.5, high=2.0) for shape in shapes(layers, width)],
        "update": draw.host.integers(1, low=1, high=20),  # its number; the training loop counts on the host
    }


def reference(
    parameters: list[Tensor], gradients: list[Tensor], means: list[Tensor], squares: list[Tensor], update: Tensor
) -> tuple[Tensor, ...]:
    unbias1, unbias2 = 1 - BETA1 ** int(update), 1 - BETA2 ** int(update)
    for p, g, m, v in zip(parameters, gradients, means, squares):
        m.copy_(BETA1 * m + (1 - BETA1) * g)
        v.copy_(BETA2 * v + (1 - BETA2) * g.square())
        p.copy_(p - RATE * (DECAY * p + (m / unbias1) / ((v / unbias2).sqrt() + EPSILON)))
    return *parameters, *means, *squares


workload = Workload(
    inputs=inputs,
    reference=reference,
    # four fp32 tensors read, three written
    cost=lambda layers, width: Cost(
        read=16 * layers * width * (12 * width + 13), write=12 * layers * width * (12 * width + 13), launches=1
    ),
    # 48 tensors of 79 M parameters; with gradients and moments 1.3 GB, so no cache holds them
    sizes={
        "bench": {"layers": 4, "width": 1280},
        "cpu": {"layers": 4, "width": 192},
        "test": {"layers": 2, "width": 19},
    },
    tolerance=1e-6,
    mutates=("parameters", "means", "squares"),
)


def prepare(
    parameters: list[Tensor], gradients: list[Tensor], means: list[Tensor], squares: list[Tensor], update: Tensor
) -> Step:
    def step() -> tuple[Tensor, ...]:
        unbias1, unbias2 = 1 - BETA1 ** int(update), 1 - BETA2 ** int(update)
        for p, g, m, v in zip(parameters, gradients, means, squares):
            p.mul_(1 - RATE * DECAY)
            m.lerp_(g, 1 - BETA1)
            v.mul_(BETA2).addcmul_(g, g, value=1 - BETA2)
            p.addcdiv_(m, v.sqrt().div_(unbias2**0.5).add_(EPSILON), value=-RATE / unbias1)
        return *parameters, *means, *squares

    return step
