"""An all-reduce: each rank returns the sum of what all ranks hold."""

from ch01.all_reduce import PROBLEM
from ch01.all_reduce import prepare as prepare
from common.python.workload import Workload

workload = Workload(**PROBLEM, gpus=2)
