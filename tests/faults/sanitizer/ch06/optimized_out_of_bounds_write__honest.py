"""Threads after the last element do nothing."""

from ch06.baseline_out_of_bounds_write import workload as workload
from ch06.kernel import calling
from common.python.cuda import load_cuda
from common.python.requirements import needs

requires = needs(sm=80)
prepare = calling(load_cuda, __file__, "doubled")
