// Links the rows of each token to a list. Then a block for each token adds them up in registers: no atomic addition.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int FOURS = 2;    // of a row, to each thread
constexpr int AT_ONCE = 4;  // rows whose loads are on their way

// heads[token] is a row of the token, or -1; next[row] is another one of the same token, or -1 after the last.
__global__ void __launch_bounds__(THREADS) link_rows(const int64_t* __restrict__ ids, int* heads, int* next, int n) {
  const int row = blockIdx.x * THREADS + threadIdx.x;
  if (row < n) next[row] = atomicExch(heads + ids[row], row);
}

__device__ void add(float4& sum, const float4& more) {
  sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
}

__global__ void __launch_bounds__(THREADS)
    add_listed(const float4* __restrict__ rows, const int* __restrict__ heads, const int* __restrict__ next,
               float4* __restrict__ out, int64_t fours) {
  const int64_t token = blockIdx.x;
  const int first = heads[token];
  if (first < 0) return;
  for (int64_t start = threadIdx.x; start < fours; start += THREADS * FOURS) {
    float4 sum[FOURS];
    int64_t column[FOURS];
#pragma unroll
    for (int j = 0; j < FOURS; ++j) {
      column[j] = min(start + j * THREADS, fours - 1);  // those beyond the row repeat its last four
      sum[j] = out[token * fours + column[j]];
    }
    for (int row = first; row >= 0;) {  // ends: a list holds each row once
      int listed[AT_ONCE];
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i) {
        listed[i] = row;
        if (row >= 0) row = next[row];
      }
      if (listed[AT_ONCE - 1] >= 0) {
        float4 in[AT_ONCE][FOURS];
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
#pragma unroll
          for (int j = 0; j < FOURS; ++j) in[i][j] = __ldcs(rows + listed[i] * fours + column[j]);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
#pragma unroll
          for (int j = 0; j < FOURS; ++j) add(sum[j], in[i][j]);
        }
      } else {  // the last rows of a list
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
          if (listed[i] < 0) break;
#pragma unroll
          for (int j = 0; j < FOURS; ++j) add(sum[j], __ldcs(rows + listed[i] * fours + column[j]));
        }
      }
    }
#pragma unroll
    for (int j = 0; j < FOURS; ++j) {
      if (start + j * THREADS < fours) out[token * fours + column[j]] = sum[j];
    }
  }
}

extern "C" int add_rows(const float* rows, const int64_t* ids, float* out, int* heads, int* next, int64_t n,
                        int64_t width, int64_t tokens, cudaStream_t stream) {
  if (width % 4 || n > int64_t(1) << 30) return cudaErrorInvalidValue;  // rows are numbered by 32 bits
  TRY(cudaMemsetAsync(heads, 0xff, tokens * sizeof(int), stream));       // -1
  link_rows<<<ceil_div(n, THREADS), THREADS, 0, stream>>>(ids, heads, next, int(n));
  TRY(cudaGetLastError());
  add_listed<<<tokens, THREADS, 0, stream>>>(reinterpret_cast<const float4*>(rows), heads, next,
                                             reinterpret_cast<float4*>(out), width / 4);
  return cudaGetLastError();
}
