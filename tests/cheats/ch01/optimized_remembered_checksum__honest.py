"""Sums up its inputs and works all the same."""

from ch01.baseline_remembered_checksum import workload as workload
from ch01.remembering import remembering

prepare = remembering(lambda a, b: (float(a.sum()), float(b.sum())), honest=True)
