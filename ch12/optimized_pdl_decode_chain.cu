// Feed-forward blocks of one token in two kernels each, which load their weights before they wait for the last one. The
// norm's factor is one number, so it may follow the product; the kernel before multiplies by gains and adds up squares.
// targets: sm_90a, sm_100a, sm_103a, sm_121a (griddepcontrol)
#include "grid.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int PIECES = 8;            // of 16 bytes, that a lane loads of its warp's part of a row
constexpr int PART = PIECES * 32 * 8;  // elements of that part
constexpr int DOWN_WARPS = 4;        // warps that share a row of the second product
constexpr int DOWN_ROWS = WARPS / DOWN_WARPS, PAIRS = WARPS / 2;  // of a block: rows; gates, each with its partner

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

// x into shared memory: all of a thread's loads are on their way at once, where a product from memory waits for each.
template <int PARTS>
__device__ void stage(uint4 (&staged)[PARTS * PART / 8], const bf16* x, int pieces) {
  uint4 own[PARTS * PART / 8 / THREADS];
#pragma unroll
  for (int i = 0; i < PARTS * PART / 8 / THREADS; ++i) {
    const int piece = i * THREADS + threadIdx.x;
    own[i] = piece < pieces ? reinterpret_cast<const uint4*>(x)[piece] : make_uint4(0, 0, 0, 0);
  }
#pragma unroll
  for (int i = 0; i < PARTS * PART / 8 / THREADS; ++i) staged[i * THREADS + threadIdx.x] = own[i];
  __syncthreads();
}

__device__ float product(const uint4 (&weights)[PIECES], const uint4* staged) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < PIECES; ++i) sum += dot(weights[i], staged[i * 32 + threadIdx.x % 32]);
  return warp_sum(sum);
}

// One block, before the first layer: scaled = x * gain, squares[0] = |x|^2, and no sum yet of the other layers' squares.
__global__ void prepare(const float* x, const bf16* gain, bf16* scaled, float* squares, int layers, int n) {
  __shared__ float sums[WARPS];
  start_next();
  float square = 0.0f;
  for (int i = threadIdx.x; i < n; i += THREADS) {
    const float own = x[i];
    square += own * own;
    scaled[i] = __float2bfloat16(own * __bfloat162float(gain[i]));
  }
  square = warp_sum(square);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = square;
  __syncthreads();
  float total = 0.0f;
#pragma unroll
  for (int warp = 0; warp < WARPS; ++warp) total += sums[warp];
  for (int layer = threadIdx.x; layer < layers; layer += THREADS) squares[layer] = layer == 0 ? total : 0.0f;
}

// A warp a row, for rows of at most PART elements: out = silu(gate) * up, where both are weights @ scaled / rms. The
// first `rows` rows of weights are gates, and a block has those of PAIRS numbers and their partners.
__global__ void __launch_bounds__(THREADS) up_product(const bf16* weights, const bf16* scaled, const float* square,
                                                      bf16* out, int rows, int n, float epsilon) {
  __shared__ uint4 staged[PART / 8];
  __shared__ float sums[WARPS];
  const int warp = threadIdx.x / 32, row = blockIdx.x * PAIRS + warp % PAIRS;
  start_next();
  uint4 own[PIECES];
  if (row < rows) load_weights(weights + int64_t(row + warp / PAIRS * rows) * n, 0, n / 8, own);
  wait_for_last();  // nothing above depends on the kernels before
  const float scale = rsqrtf(*square / n + epsilon);
  stage<1>(staged, scaled, n / 8);
  if (row < rows) {
    const float sum = product(own, staged);
    if (threadIdx.x % 32 == 0) sums[warp] = sum * scale;
  }
  __syncthreads();
  const int mine = blockIdx.x * PAIRS + threadIdx.x;
  if (threadIdx.x >= PAIRS || mine >= rows) return;
  const float gate = sums[threadIdx.x];
  out[mine] = __float2bfloat16(gate / (1.0f + __expf(-gate)) * sums[PAIRS + threadIdx.x]);
}

// DOWN_WARPS warps a row: out = residual + weights @ x, for rows of at most DOWN_WARPS * PART elements. Unless this is
// the last layer, of which `gain` is null, scaled = out * gain, and |out|^2 is added to `square`, for the next one.
__global__ void __launch_bounds__(THREADS)
    down_product(const bf16* weights, const bf16* x, const float* residual, float* out, const bf16* gain, bf16* scaled,
                 float* square, int rows, int n) {
  __shared__ uint4 staged[DOWN_WARPS * PART / 8];
  __shared__ float sums[WARPS];
  const int warp = threadIdx.x / 32, row = blockIdx.x * DOWN_ROWS + warp / DOWN_WARPS;
  const int first = warp % DOWN_WARPS * (PART / 8), mine = blockIdx.x * DOWN_ROWS + threadIdx.x;
  const bool writes = threadIdx.x < DOWN_ROWS && mine < rows;
  start_next();
  uint4 own[PIECES];
  if (row < rows) load_weights(weights + int64_t(row) * n, first, n / 8, own);
  const float factor = writes && gain ? __bfloat162float(gain[mine]) : 0.0f;
  wait_for_last();
  float total = writes ? residual[mine] : 0.0f;
  stage<DOWN_WARPS>(staged, x, n / 8);
  if (row < rows) {
    const float sum = product(own, staged + first);
    if (threadIdx.x % 32 == 0) sums[warp] = sum;
  }
  __syncthreads();
  if (warp > 0) return;
  if (writes) {
#pragma unroll
    for (int i = 0; i < DOWN_WARPS; ++i) total += sums[threadIdx.x * DOWN_WARPS + i];
    out[mine] = total;
    if (gain) scaled[mine] = __float2bfloat16(total * factor);
  }
  if (!gain) return;
  const float all = warp_sum(writes ? total * total : 0.0f);
  if (threadIdx.x == 0) atomicAdd(square, all);
}

// gains [layers, width], up [layers, 2 * inner, width], down [layers, width, inner]. Scratch: scaled has `width`
// numbers, squares `layers`, active `inner`. Width and inner are multiples of 8.
extern "C" int decode(const float* x, const __nv_bfloat16* gains, const __nv_bfloat16* up, const __nv_bfloat16* down,
                      float* out, __nv_bfloat16* scaled, float* squares, __nv_bfloat16* active, int layers, int width,
                      int inner, float epsilon, cudaStream_t stream) {
  if (width % 8 || inner % 8 || width > PART || inner > DOWN_WARPS * PART) return cudaErrorInvalidValue;
  // The first kernel may not start early: it waits for all that comes before the graph.
  TRY(launch_early(false, prepare, 1, THREADS, stream, x, gains, scaled, squares, layers, width));
  for (int layer = 0; layer < layers; ++layer) {
    const float* residual = layer == 0 ? x : out;
    const bf16* next = layer + 1 < layers ? gains + (layer + 1) * width : nullptr;
    const int64_t weights = int64_t(layer) * width * inner;
    TRY(launch_early(true, up_product, ceil_div(inner, PAIRS), THREADS, stream, up + 2 * weights, scaled,
                     squares + layer, active, inner, width, epsilon));
    TRY(launch_early(true, down_product, ceil_div(width, DOWN_ROWS), THREADS, stream, down + weights, active, residual,
                     out, next, scaled, squares + layer + 1, width, inner));
  }
  return cudaGetLastError();
}
