"""Every element is doubled 100 times over."""

from ch01.optimized_healthy import prepare as prepare
from ch01.problem import workload as workload
