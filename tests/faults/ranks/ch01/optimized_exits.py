"""Ends the process of rank 1 with code 0, as if it were done."""

import os
from functools import partial

from ch01.all_reduce import prepare_with
from ch01.baseline_exits import workload as workload

prepare = partial(prepare_with, lambda: os._exit(0))
