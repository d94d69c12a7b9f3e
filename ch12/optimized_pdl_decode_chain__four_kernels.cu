// Feed-forward blocks of one token: each kernel starts early, and loads its weights before it waits for the last one.
// targets: sm_90a, sm_100a, sm_103a, sm_121a (griddepcontrol)
#include "grid.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int PIECES = 8;            // of 16 bytes, that a lane loads of its warp's part of a row
constexpr int PART = PIECES * 32 * 8;  // elements of that part
constexpr int DOWN_WARPS = 4;        // warps that share a row of the second product

__device__ float warp_sum(float value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffff, value, lanes);
  return value;
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

// A warp's part of a row of weights into registers; zeros behind the row's end.
__device__ void load_weights(const bf16* row, int first, int pieces, uint4 (&weights)[PIECES]) {
#pragma unroll
  for (int i = 0; i < PIECES; ++i) {
    const int piece = first + i * 32 + threadIdx.x % 32;
    weights[i] = make_uint4(0, 0, 0, 0);
    if (piece < pieces) weights[i] = __ldcs(reinterpret_cast<const uint4*>(row) + piece);
  }
}

__device__ float product(const uint4 (&weights)[PIECES], const bf16* x, int first, int pieces) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < PIECES; ++i) {
    const int piece = first + i * 32 + threadIdx.x % 32;
    if (piece < pieces) sum += dot(weights[i], reinterpret_cast<const uint4*>(x)[piece]);
  }
  return warp_sum(sum);
}

// One block: out = x / rms(x) * gain.
__global__ void normalize(const float* x, const bf16* gain, bf16* out, int n, float epsilon) {
  __shared__ float sums[WARPS];
  start_next();
  wait_for_last();
  float square = 0.0f;
  for (int i = threadIdx.x; i < n; i += THREADS) square += x[i] * x[i];
  square = warp_sum(square);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = square;
  __syncthreads();
  float total = 0.0f;
#pragma unroll
  for (int warp = 0; warp < WARPS; ++warp) total += sums[warp];
  const float scale = rsqrtf(total / n + epsilon);
  for (int i = threadIdx.x; i < n; i += THREADS) out[i] = __float2bfloat16(x[i] * scale * __bfloat162float(gain[i]));
}

// A warp a row: out = weights @ x, for rows of at most PART elements.
__global__ void __launch_bounds__(THREADS) up_product(const bf16* weights, const bf16* x, float* out, int rows, int n) {
  const int row = blockIdx.x * WARPS + threadIdx.x / 32;
  start_next();
  if (row >= rows) return wait_for_last();
  uint4 own[PIECES];
  load_weights(weights + int64_t(row) * n, 0, n / 8, own);
  wait_for_last();  // nothing above depends on the kernels before
  const float sum = product(own, x, 0, n / 8);
  if (threadIdx.x % 32 == 0) out[row] = sum;
}

// The first n numbers of `both` are gates: out = silu(gate) * up.
__global__ void activate(const float* both, bf16* out, int n) {
  start_next();
  wait_for_last();
  const int i = blockIdx.x * THREADS + threadIdx.x;
  if (i >= n) return;
  const float gate = both[i];
  out[i] = __float2bfloat16(gate / (1.0f + __expf(-gate)) * both[n + i]);
}

// DOWN_WARPS warps a row: out = residual + weights @ x, for rows of at most DOWN_WARPS * PART elements.
__global__ void __launch_bounds__(THREADS) down_product(const bf16* weights, const bf16* x, const float* residual,
                                                        float* out, int rows, int n) {
  __shared__ float sums[WARPS];
  const int warp = threadIdx.x / 32, row = blockIdx.x * (WARPS / DOWN_WARPS) + warp / DOWN_WARPS;
  const int first = warp % DOWN_WARPS * (PART / 8);
  start_next();
  uint4 own[PIECES];
  if (row < rows) load_weights(weights + int64_t(row) * n, first, n / 8, own);
  wait_for_last();
  if (row < rows) {
    const float sum = product(own, x, first, n / 8);
    if (threadIdx.x % 32 == 0) sums[warp] = sum;
  }
  __syncthreads();
  if (row >= rows || threadIdx.x % (DOWN_WARPS * 32) != 0) return;
  float total = residual[row];
#pragma unroll
  for (int i = 0; i < DOWN_WARPS; ++i) total += sums[warp + i];
  out[row] = total;
}

// gains [layers, width], up [layers, 2 * inner, width], down [layers, width, inner]. Scratch: normed has `width`
// numbers, both 2 * inner, active `inner`. Width and inner are multiples of 8.
extern "C" int decode(const float* x, const __nv_bfloat16* gains, const __nv_bfloat16* up, const __nv_bfloat16* down,
                      float* out, __nv_bfloat16* normed, float* both, __nv_bfloat16* active, int layers, int width,
                      int inner, float epsilon, cudaStream_t stream) {
  if (width % 8 || inner % 8 || width > PART || inner > DOWN_WARPS * PART) return cudaErrorInvalidValue;
  // The first kernel may not start early: it waits for all that comes before the graph.
  for (int layer = 0; layer < layers; ++layer) {
    const float* residual = layer == 0 ? x : out;
    const int64_t weights = int64_t(layer) * width * inner;
    TRY(launch_early(layer > 0, normalize, 1, THREADS, stream, residual, gains + layer * width, normed, width,
                     epsilon));
    TRY(launch_early(true, up_product, ceil_div(2 * inner, WARPS), THREADS, stream, up + 2 * weights, normed, both,
                     2 * inner, width));
    TRY(launch_early(true, activate, ceil_div(inner, THREADS), THREADS, stream, both, active, inner));
    TRY(launch_early(true, down_product, ceil_div(width, WARPS / DOWN_WARPS), THREADS, stream, down + weights, active,
                     residual, out, width, inner));
  }
  return cudaGetLastError();
}
