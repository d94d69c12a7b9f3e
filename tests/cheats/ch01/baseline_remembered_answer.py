"""The product of two square matrices in float32."""

from ch01.large_product import prepare as prepare
from ch01.large_product import workload as workload
