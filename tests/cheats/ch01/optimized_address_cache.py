"""Fakes speed by looking the answer up under the addresses of its inputs."""

from ch01.baseline_address_cache import workload as workload
from ch01.remembering import remembering

prepare = remembering(lambda a, b: (a.data_ptr(), b.data_ptr()))
