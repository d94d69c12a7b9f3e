// The header of every .cu file of a pair: CUDA's types, its errors, and the arithmetic that every launcher needs.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

using bf16 = __nv_bfloat16;

// Returns the error of a CUDA call, if there is one, from the function around it.
#define TRY(...)                                               \
  do {                                                         \
    if (const cudaError_t error = (__VA_ARGS__)) return error; \
  } while (false)

// Number of blocks of `size` that cover `n` items.
__host__ __device__ constexpr int64_t ceil_div(int64_t n, int64_t size) { return (n + size - 1) / size; }

// An attribute of the current GPU.
inline cudaError_t query_device(int* value, cudaDeviceAttr attribute) {
  int device = 0;
  TRY(cudaGetDevice(&device));
  return cudaDeviceGetAttribute(value, attribute, device);
}

// How many blocks of a kernel the current GPU holds at once.
template <typename Kernel>
cudaError_t count_resident(int* blocks, Kernel kernel, int threads, size_t shared_bytes = 0) {
  int multiprocessors = 0;
  TRY(query_device(&multiprocessors, cudaDevAttrMultiProcessorCount));
  TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, threads, shared_bytes));
  *blocks *= multiprocessors;
  return cudaSuccess;
}

// A function of the driver by its name, which spares linking with libcuda, in the form that it has had since `version`.
template <typename Function>
cudaError_t find_driver_function(Function* function, const char* name, int version = 12000) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status;
  TRY(cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &status));
  *function = reinterpret_cast<Function>(found);
  return status == cudaDriverEntryPointSuccess ? cudaSuccess : cudaErrorNotSupported;
}

// A pointer into shared memory as instructions want it.
__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
