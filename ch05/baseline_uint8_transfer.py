"""The host makes floats of the images' bytes, all cores at work, and four times as many bytes cross to the GPU."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's colours, which are from 0 to 1


def inputs(draw: Draw, images: int, height: int, width: int) -> Inputs:
    """Images as a decoder leaves them: bytes of red, green and blue for each pixel, in the host's memory."""
    decoded = draw.host.integers(images, height, width, 3, high=256, dtype=torch.uint8)
    colours = torch.tensor([MEAN, DEVIATION], device=draw.device)
    return {"decoded": decoded.pin_memory() if colours.is_cuda else decoded, "colours": colours}


def reference(decoded: Tensor, colours: Tensor) -> Tensor:
    mean, deviation = colours[:, :, None, None]
    return (decoded.permute(0, 3, 1, 2).to(colours) / 255 - mean) / deviation


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=lambda images, height, width: Cost(
        pcie_bytes=3 * images * height * width,
        write=12 * images * height * width,
        items=images,
        unit="images",
    ),
    sizes={
        "bench": {"images": 512, "height": 224, "width": 224},
        "test": {"images": 3, "height": 17, "width": 23},
    },
    tolerance=1e-5,
    frozen=("colours",),
    clock="end_to_end",
)


def factors(colours: Tensor) -> tuple[Tensor, Tensor]:
    """What a byte is multiplied by, and what is then added, for each colour."""
    mean, deviation = colours[:, :, None, None]
    return 1 / (255 * deviation), -mean / deviation


def prepare(decoded: Tensor, colours: Tensor) -> Step:
    scale, shift = factors(colours.cpu())
    planes = decoded.permute(0, 3, 1, 2)
    staged = torch.empty(planes.shape, pin_memory=colours.is_cuda)
    out = torch.empty(planes.shape, device=colours.device)

    def step() -> Tensor:
        torch.mul(planes, scale, out=staged).add_(shift)
        return out.copy_(staged, non_blocking=True)

    return step
