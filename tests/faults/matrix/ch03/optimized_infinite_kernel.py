"""Its kernel never ends."""

from ch03.baseline_infinite_kernel import workload as workload
from ch03.kernel import calling
from common.python.cuda import load_cuda
from common.python.requirements import needs

requires = needs(gpus=1)
prepare = calling(load_cuda, __file__, "doubled")
