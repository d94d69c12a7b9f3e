"""Reads from address 0 on rank 1."""

import ctypes
from functools import partial

from ch01.all_reduce import prepare_with
from ch01.baseline_dies import workload as workload

prepare = partial(prepare_with, lambda: ctypes.string_at(0))
