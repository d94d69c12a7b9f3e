"""The product of two large square matrices in float32."""

from dataclasses import replace

from ch01.product import prepare as prepare
from ch01.product import workload as other

workload = replace(other, sizes={"bench": {"n": 4096}, "cpu": {"n": 768}, "test": {"n": 33}})
