"""Asserts what is not so."""

from ch03.baseline_device_assert import workload as workload
from ch03.kernel import calling
from common.python.cuda import load_cuda
from common.python.requirements import needs

requires = needs(gpus=1)
prepare = calling(load_cuda, __file__, "doubled")
