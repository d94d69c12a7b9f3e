"""The host stops at every training step: a pageable copy in, a loss read back, one launch for each small operation."""

import weakref
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import linear, mse_loss, silu

from common.python.workload import Cost, Draw, Inputs, Step, Workload

RATE = 0.05
STEPS = 8


def reconstruction_loss(batch: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """An autoencoder: an MLP that is to give back its input. `parameters` are weight, bias, weight, bias, ..."""
    *inner, last = zip(parameters[::2], parameters[1::2])
    hidden = batch
    for weight, bias in inner:
        hidden = silu(linear(hidden, weight, bias))  # smooth: at a kink, rounding would pick the gradient
    return mse_loss(linear(hidden, *last), batch)


def training(images: Tensor, parameters: list[Tensor]) -> tuple[Tensor, ...]:
    """Losses and parameters after one step of plain gradient descent on each batch in turn."""
    losses = []
    for batch in images.to(parameters[0].device):
        parameters = [parameter.requires_grad_() for parameter in parameters]
        loss = reconstruction_loss(batch, parameters)
        gradients = torch.autograd.grad(loss, parameters)
        parameters = [(parameter - RATE * gradient).detach() for parameter, gradient in zip(parameters, gradients)]
        losses.append(loss.detach())
    return (torch.stack(losses), *parameters)


def page_lock(host: Tensor) -> None:
    """Page-lock the memory of `host` where it lies, until `host` is freed; some of the rungs do so with the images."""
    if not host.is_pinned():
        cudart = torch.cuda.cudart()
        torch.cuda.check_error(cudart.cudaHostRegister(host.data_ptr(), host.nbytes, 0))
        weakref.finalize(host, cudart.cudaHostUnregister, host.data_ptr())


def inputs(draw: Draw, batch: int, pixels: int, width: int, layers: int) -> Inputs:
    hidden = [width] * (layers - 1)
    parameters = []
    for fan_in, fan_out in zip([pixels, *hidden], [*hidden, pixels]):
        parameters += [draw.normal(fan_out, fan_in, std=(2 / fan_in) ** 0.5), draw.normal(fan_out, std=0.1)]
    return {"images": draw.host.normal(STEPS, batch, pixels), "parameters": parameters}


def cost(batch: int, pixels: int, width: int, layers: int) -> Cost:
    edges, weights = pixels * width, 2 * pixels * width + (layers - 2) * width * width
    return Cost(  # no phases: a batch can be copied while the one before is trained on
        flops=STEPS * 2 * batch * (3 * weights - edges),  # forward, and two products backward; images need no gradient
        dtype="fp32",
        read=4 * weights,  # the images may go where they are needed straight from the bus
        write=4 * weights,
        pcie_bytes=4 * STEPS * batch * pixels,
        items=STEPS * batch,
        unit="images",
    )


workload = Workload(
    inputs=inputs,
    reference=training,
    cost=cost,
    sizes={
        "bench": {"batch": 128, "pixels": 3072, "width": 256, "layers": 8},
        "cpu": {"batch": 8, "pixels": 96, "width": 32, "layers": 8},
        "test": {"batch": 5, "pixels": 19, "width": 13, "layers": 3},
    },
    tolerance=1e-5,
    rungs="no_item foreach pinned",
    mutates=("parameters", "images"),  # images too: page-locking changes their memory, so each variant has its own
    clock="end_to_end",
)


def prepare(images: Tensor, parameters: list[Tensor]) -> Step:
    trained: list[Tensor] = [Parameter(parameter) for parameter in parameters]
    device = parameters[0].device

    def step() -> tuple[Tensor, ...]:
        losses = []
        for batch in images:
            loss = reconstruction_loss(batch.to(device), trained)
            gradients = torch.autograd.grad(loss, trained)
            with torch.no_grad():
                for parameter, gradient in zip(trained, gradients):
                    parameter.sub_(RATE * gradient)
            losses.append(loss.item())
        return (parameters[0].new_tensor(losses), *parameters)

    return step
