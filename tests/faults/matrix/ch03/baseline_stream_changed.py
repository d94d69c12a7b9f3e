"""Each element is doubled."""

from ch01.problem import prepare as prepare
from ch01.problem import workload as workload
