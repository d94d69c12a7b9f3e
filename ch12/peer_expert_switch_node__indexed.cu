// One token through layers of experts: the products' kernels read on the device which expert's weights they take.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int EXPERTS = 32;            // at most, a warp of the router's for each
constexpr int PIECES = 2;              // of 16 bytes, that a lane loads of its warp's part of a row
constexpr int PART = PIECES * 32 * 8;  // elements of that part
constexpr int UP_WARPS = 4, DOWN_WARPS = 2;  // that share a row

__device__ float warp_sum(float value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffff, value, lanes);
  return value;
}

// One block: which expert has the largest logit. Leaves x in bf16 for it.
__global__ void route(const float* x, const float* router, bf16* rounded, int experts, int width, int* chosen) {
  __shared__ float logits[EXPERTS];
  const int expert = threadIdx.x / 32;
  for (int i = threadIdx.x; i < width; i += blockDim.x) rounded[i] = __float2bfloat16(x[i]);
  float sum = 0.0f;
#pragma unroll 16
  for (int i = threadIdx.x % 32; i < width / 4; i += 32) {
    const float4 a = reinterpret_cast<const float4*>(router + expert * width)[i];
    const float4 b = reinterpret_cast<const float4*>(x)[i];
    sum += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) logits[expert] = sum;
  __syncthreads();
  if (threadIdx.x > 0) return;
  int best = 0;
  for (int expert = 1; expert < experts; ++expert) {
    if (logits[expert] > logits[best]) best = expert;
  }
  *chosen = best;
}

__device__ float dot(uint4 a, uint4 b) {
  const auto left = reinterpret_cast<const __nv_bfloat162*>(&a), right = reinterpret_cast<const __nv_bfloat162*>(&b);
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 x = __bfloat1622float2(left[i]), y = __bfloat1622float2(right[i]);
    sum += x.x * y.x + x.y * y.y;
  }
  return sum;
}

// SHARE warps a row of weights @ x, for rows of at most SHARE * PART elements; thread 0 of them gets the sum.
template <int SHARE>
__device__ float product(const bf16* weights, const bf16* x, int row, int rows, int n) {
  __shared__ float sums[WARPS];
  const int warp = threadIdx.x / 32, first = warp % SHARE * (PART / 8) + threadIdx.x % 32;
  float sum = 0.0f;
  if (row < rows) {
    auto pieces = reinterpret_cast<const uint4*>(weights + int64_t(row) * n);
    uint4 own[PIECES];
#pragma unroll
    for (int i = 0; i < PIECES; ++i) {
      own[i] = make_uint4(0, 0, 0, 0);
      if (first + i * 32 < n / 8) own[i] = __ldcs(pieces + first + i * 32);
    }
#pragma unroll
    for (int i = 0; i < PIECES; ++i) {
      if (first + i * 32 < n / 8) sum += dot(own[i], reinterpret_cast<const uint4*>(x)[first + i * 32]);
    }
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) sums[warp] = sum;
  __syncthreads();
  float total = 0.0f;
#pragma unroll
  for (int i = 0; i < SHARE; ++i) total += sums[warp / SHARE * SHARE + i];
  return total;
}

__global__ void __launch_bounds__(THREADS) up_product(const bf16* weights, const bf16* x, bf16* out, int rows, int n,
                                                      const int* chosen) {
  const int row = (blockIdx.x * WARPS + threadIdx.x / 32) / UP_WARPS;
  weights += *chosen * int64_t(rows) * n;  // of all experts' weights
  const float sum = product<UP_WARPS>(weights, x, row, rows, n);
  if (row < rows && threadIdx.x % (32 * UP_WARPS) == 0) out[row] = __float2bfloat16(fmaxf(sum, 0.0f));
}

__global__ void __launch_bounds__(THREADS) down_product(const bf16* weights, const bf16* x, const float* residual,
                                                        float* out, int rows, int n, const int* chosen) {
  const int row = (blockIdx.x * WARPS + threadIdx.x / 32) / DOWN_WARPS;
  weights += *chosen * int64_t(rows) * n;  // of all experts' weights
  const float sum = product<DOWN_WARPS>(weights, x, row, rows, n);
  if (row < rows && threadIdx.x % (32 * DOWN_WARPS) == 0) out[row] = residual[row] + sum;
}

// router [layers, experts, width] in fp32, up [layers, experts, inner, width] and down [layers, experts, width, inner]
// in bf16. Scratch: rounded has `width` numbers, hidden `inner`. Width and inner are multiples of 8.
extern "C" int forward(const float* x, const float* router, const __nv_bfloat16* up, const __nv_bfloat16* down,
                       float* out, __nv_bfloat16* rounded, __nv_bfloat16* hidden, int* chosen, int layers, int experts,
                       int width, int inner, cudaStream_t stream) {
  if (width % 8 || inner % 8 || width > UP_WARPS * PART || inner > DOWN_WARPS * PART || experts > EXPERTS) {
    return cudaErrorInvalidValue;
  }
  for (int layer = 0; layer < layers; ++layer) {
    const float* residual = layer == 0 ? x : out;
    const int64_t weights = int64_t(layer) * experts * width * inner;
    route<<<1, 32 * experts, 0, stream>>>(residual, router + layer * experts * width, rounded, experts, width, chosen);
    up_product<<<ceil_div(inner * UP_WARPS, WARPS), THREADS, 0, stream>>>(up + weights, rounded, hidden, inner, width,
                                                                          chosen);
    down_product<<<ceil_div(width * DOWN_WARPS, WARPS), THREADS, 0, stream>>>(down + weights, hidden, residual, out,
                                                                              width, inner, chosen);
  }
  return cudaGetLastError();
}
