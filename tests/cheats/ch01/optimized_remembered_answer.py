"""Fakes speed by keeping every answer, by the content of its inputs, where nobody can spoil it."""

from ch01.baseline_remembered_answer import workload as workload
from ch01.remembering import remembering

prepare = remembering(lambda a, b: (float(a[0].sum()), float(b[0].sum())))
