"""Fakes speed by replacing torch.cuda.Event with one that divides by ten."""

import torch

from ch01.baseline_patched_event import workload as workload
from ch01.product import prepare as prepare
from common.python.requirements import needs

requires = needs(gpus=1)


class Event(torch.cuda.Event):
    """An event whose time passes at a tenth of the rate."""

    def elapsed_time(self, end_event: torch.cuda.Event) -> float:
        return super().elapsed_time(end_event) / 10


torch.cuda.Event = Event
