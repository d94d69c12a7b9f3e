// Look values up in a managed table, first the GPU and then the host: whoever reads a page has it sent over.
#include "kernel.cuh"

constexpr int THREADS = 256;

// Managed memory, its address in `address`; no more of it than the GPU has free, or its pages would be evicted again.
extern "C" int allocate(int64_t* address, int64_t bytes, cudaStream_t stream) {
  int concurrent = 0;
  size_t available = 0, total = 0;
  TRY(query_device(&concurrent, cudaDevAttrConcurrentManagedAccess));
  TRY(cudaMemGetInfo(&available, &total));
  if (!concurrent) return cudaErrorNotSupported;
  if (size_t(bytes) > available) return cudaErrorMemoryAllocation;
  void* memory = nullptr;
  TRY(cudaMallocManaged(&memory, bytes));
  *address = reinterpret_cast<int64_t>(memory);
  return cudaSuccess;
}

extern "C" int release(int64_t address, cudaStream_t stream) { return cudaFree(reinterpret_cast<void*>(address)); }

__global__ void __launch_bounds__(THREADS)
    gather(const float* __restrict__ table, const int64_t* __restrict__ ids, float* __restrict__ out, int64_t count) {
  const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  if (i < count) out[i] = table[ids[i]];
}

// The addresses that are numbers may be those of any memory which the GPU (`table`) or the host (the others) can read.
extern "C" int look_up(int64_t table, const int64_t* ids, float* out, int64_t count, int64_t host_table,
                       int64_t host_ids, int64_t host_out, int64_t host_count, cudaStream_t stream) {
  gather<<<ceil_div(count, THREADS), THREADS, 0, stream>>>(reinterpret_cast<const float*>(table), ids, out, count);
  TRY(cudaGetLastError());
  TRY(cudaStreamSynchronize(stream));  // the host's turn comes when the GPU has what it wants
  const auto from = reinterpret_cast<const float*>(host_table);
  const auto which = reinterpret_cast<const int64_t*>(host_ids);
  const auto to = reinterpret_cast<float*>(host_out);
  for (int64_t i = 0; i < host_count; ++i) to[i] = from[which[i]];
  return cudaSuccess;
}
