"""Every element is doubled 200 times over."""

from ch01.baseline_healthy import prepare as prepare
from ch01.problem import workload as workload
