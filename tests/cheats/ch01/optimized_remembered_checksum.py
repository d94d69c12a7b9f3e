"""Fakes speed by keeping every answer, by a sum over all values of each input."""

from ch01.baseline_remembered_checksum import workload as workload
from ch01.remembering import remembering

prepare = remembering(lambda a, b: (float(a.sum()), float(b.sum())))
