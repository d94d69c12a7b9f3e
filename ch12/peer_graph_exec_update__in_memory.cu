// A line of kernels that never changes: which field, and the rates, are values in device memory.
#include "kernel.cuh"

constexpr int THREADS = 256;

__global__ void relax(const float* fields, const int* slot, const float* rate, const float* x, float* next, int n) {
  const int i = blockIdx.x * THREADS + threadIdx.x;
  if (i >= n) return;
  const float* field = fields + int64_t(*slot) * n;
  if (x == nullptr) x = field;
  next[i] = (1.0f - *rate) * x[i + 1 < n ? i + 1 : 0] + *rate * field[i];
}

extern "C" int run(const float* fields, const int* slot, const float* rates, float* out, float* scratch, int n,
                   int count, cudaStream_t stream) {
  const float* x = nullptr;
  for (int index = 0; index < count; ++index) {
    float* next = (count - index) % 2 ? out : scratch;
    relax<<<ceil_div(n, THREADS), THREADS, 0, stream>>>(fields, slot, rates + index, x, next, n);
    x = next;
  }
  return cudaGetLastError();
}
