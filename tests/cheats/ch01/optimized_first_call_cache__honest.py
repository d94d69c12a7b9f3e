"""Keeps the answer of each call; the next one computes it anew."""

from ch01.baseline_first_call_cache import workload as workload
from ch01.remembering import remembering

prepare = remembering(lambda a, b: (), honest=True)
