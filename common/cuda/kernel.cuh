// The header of every .cu file of a pair: CUDA's types and the arithmetic that every launcher needs.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

// Number of blocks of `size` that cover `n` items.
__host__ __device__ constexpr int64_t ceil_div(int64_t n, int64_t size) { return (n + size - 1) / size; }
