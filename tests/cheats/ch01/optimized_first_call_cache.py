"""Fakes speed by keeping the answer of the first call."""

from ch01.baseline_first_call_cache import workload as workload
from ch01.remembering import remembering

prepare = remembering(lambda a, b: ())
