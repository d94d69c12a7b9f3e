"""Keeps the answer under the addresses of its inputs and works all the same."""

from ch01.baseline_address_cache import workload as workload
from ch01.remembering import remembering

prepare = remembering(lambda a, b: (a.data_ptr(), b.data_ptr()), honest=True)
