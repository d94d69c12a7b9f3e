"""Looks at how often its inputs were written and works all the same."""

from ch01.baseline_remembered_version import workload as workload
from ch01.remembering import remembering

prepare = remembering(lambda a, b: (a._version, b._version), honest=True)
