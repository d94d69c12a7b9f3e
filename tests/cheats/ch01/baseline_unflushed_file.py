"""Each count plus one, in a file of bytes."""

from ch01.next_counts import prepare as prepare
from ch01.next_counts import workload as workload
