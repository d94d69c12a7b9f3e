"""Threads wait at a barrier before they read what others wrote to shared memory."""

from ch06.baseline_shared_memory_race import workload as workload
from ch06.kernel import calling
from common.python.cuda import load_cuda
from common.python.requirements import needs

requires = needs(sm=80)
prepare = calling(load_cuda, __file__, "reversed")
