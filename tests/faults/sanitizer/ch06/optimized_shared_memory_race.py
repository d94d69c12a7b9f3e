"""Threads read what other warps wrote to shared memory without waiting for them."""

from ch06.baseline_shared_memory_race import workload as workload
from ch06.kernel import calling
from common.python.cuda import load_cuda
from common.python.requirements import needs

requires = needs(sm=80)
prepare = calling(load_cuda, __file__, "reversed")
