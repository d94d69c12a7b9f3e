"""A graph of 512 kernels, one for each time step: every kernel loads the same recurrent weights again."""

import torch
from torch import Tensor

from common.models.graphs import replayable
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(sm=80)


def inputs(draw: Draw, steps: int, batch: int, features: int, width: int) -> Inputs:
    """Weights and biases as torch.nn.GRU draws them; gates in the order reset, update, new."""
    most = width**-0.5
    shapes = {"w_ih": (3 * width, features), "w_hh": (3 * width, width), "b_ih": (3 * width,), "b_hh": (3 * width,)}
    weights = {name: draw.uniform(*shape, low=-most, high=most, dtype=torch.float16) for name, shape in shapes.items()}
    x, start = draw.normal(steps, batch, features, dtype=torch.float16), draw.normal(batch, width, dtype=torch.float16)
    return {"x": x, "start": start, **weights}


def reference(x: Tensor, start: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> Tensor:
    state, states = start, []
    for given in x @ w_ih.T + b_ih:
        given_reset, given_update, given_new = given.chunk(3, dim=1)
        reset, update, new = (state @ w_hh.T + b_hh).chunk(3, dim=1)
        fresh = torch.tanh(given_new + torch.sigmoid(given_reset + reset) * new)
        state = fresh + torch.sigmoid(given_update + update) * (state - fresh)
        states.append(state)
    return torch.stack(states)


def cost(steps: int, batch: int, features: int, width: int) -> Cost:
    weights, rows = 3 * width * (features + width), steps * batch
    read, write = 2 * (weights + rows * features), 2 * rows * width
    return Cost(flops=2 * rows * weights, dtype="fp16", read=read, write=write, items=steps, unit="time steps")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"steps": 512, "batch": 16, "features": 1024, "width": 1024},
        "test": {"steps": 7, "batch": 5, "features": 24, "width": 40},
    },
    tolerance=5e-3,  # the state is rounded to fp16 (0.03%) at each step, and errors fade over a few steps
    frozen=("w_ih", "w_hh", "b_ih", "b_hh"),
)


def prepare(x: Tensor, start: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> Step:
    gru, (steps, batch, _), width = load_cuda(__file__, "gru"), x.shape, start.shape[1]
    given, states = x.new_empty(steps * batch, 3 * width), x.new_empty(steps, batch, width)

    def work() -> None:
        torch.addmm(b_ih, x.flatten(0, 1), w_ih.T, out=given)
        gru(given, w_hh, b_hh, start, states, steps, batch, width)

    replay = replayable(work, x.device)

    def step() -> Tensor:
        replay()
        return states

    return step
