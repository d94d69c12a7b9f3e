"""The product of two square matrices in float32."""

from ch01.product import prepare as prepare
from ch01.product import workload as workload
