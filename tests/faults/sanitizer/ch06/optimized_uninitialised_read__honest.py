"""Writes its output, whatever memory held before."""

from ch06.baseline_uninitialised_read import workload as workload
from ch06.kernel import calling
from common.python.cuda import load_cuda
from common.python.requirements import needs

requires = needs(sm=80)
prepare = calling(load_cuda, __file__, "doubled")
