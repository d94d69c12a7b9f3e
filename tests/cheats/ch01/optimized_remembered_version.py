"""Fakes speed by keeping every answer until torch counts another write to its inputs."""

from ch01.baseline_remembered_version import workload as workload
from ch01.remembering import remembering

prepare = remembering(lambda a, b: (a._version, b._version))
