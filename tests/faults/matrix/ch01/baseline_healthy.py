"""Every element is doubled 200 times over."""

from functools import partial

from ch01.problem import prepare_repeated
from ch01.problem import workload as workload

prepare = partial(prepare_repeated, 200)
