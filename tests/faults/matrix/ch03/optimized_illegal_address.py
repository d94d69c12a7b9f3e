"""Writes where no memory is."""

from ch03.baseline_illegal_address import workload as workload
from ch03.kernel import calling
from common.python.cuda import load_cuda
from common.python.requirements import needs

requires = needs(gpus=1)
prepare = calling(load_cuda, __file__, "doubled")
