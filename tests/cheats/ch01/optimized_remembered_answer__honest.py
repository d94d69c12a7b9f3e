"""Keeps every answer and works all the same."""

from ch01.baseline_remembered_answer import workload as workload
from ch01.remembering import remembering

prepare = remembering(lambda a, b: (float(a[0].sum()), float(b[0].sum())), honest=True)
