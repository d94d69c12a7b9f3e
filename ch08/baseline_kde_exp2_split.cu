// A sum of Gaussians at each point: every exponential by the special-function unit.
#include "kernel.cuh"
#include "special.cuh"

constexpr int THREADS = 256;
constexpr int POINTS = 4;     // of a thread, at once
constexpr int TURNS = 4;      // of a block, for which it prepares the centers once
constexpr int BLOCK = THREADS * POINTS * TURNS;
constexpr int MOST = 1024;    // centers
constexpr int EVERY = 4;      // centers of a step of the loop
constexpr float SCALE = 0.72134752f;  // log2(e) / 2

// exp(-|p - c|^2 / 2) is exp2(-s |p|^2) exp2(2 s p c - s |c|^2), with s for SCALE. The first factor belongs to the
// point alone, so a pair takes two multiply-adds, an exponential and an addition. Weights are in the exponents too.
__global__ void __launch_bounds__(THREADS) gaussians(const float2* points, const float2* centers, const float* weights,
                                                     float* out, int64_t n, int count) {
  __shared__ float4 prepared[MOST];
  const int padded = int(ceil_div(count, EVERY)) * EVERY;
  for (int k = threadIdx.x; k < padded; k += THREADS) {
    float4 center = make_float4(0.0f, 0.0f, -125.0f, 0.0f);  // one that is not there: next to nothing
    if (k < count) {
      const float2 at = centers[k];
      const float bias = log2f(weights[k]) - SCALE * (at.x * at.x + at.y * at.y);
      center = make_float4(2.0f * SCALE * at.x, 2.0f * SCALE * at.y, bias, 0.0f);
    }
    prepared[k] = center;
  }
  __syncthreads();
  for (int turn = 0; turn < TURNS; ++turn) {
    const int64_t first = (int64_t(blockIdx.x) * TURNS + turn) * (THREADS * POINTS) + threadIdx.x;
    float2 own[POINTS];
    float sums[POINTS] = {};
#pragma unroll
    for (int i = 0; i < POINTS; ++i) {
      const int64_t at = first + i * THREADS;
      own[i] = at < n ? points[at] : make_float2(0.0f, 0.0f);
    }
    for (int k = 0; k < padded; k += EVERY) {
#pragma unroll
      for (int j = 0; j < EVERY; ++j) {
        const float4 center = prepared[k + j];
#pragma unroll
        for (int i = 0; i < POINTS; ++i) {
          const float exponent = fmaf(own[i].x, center.x, fmaf(own[i].y, center.y, center.z));
          sums[i] += exp2_special(exponent);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < POINTS; ++i) {
      const int64_t at = first + i * THREADS;
      const float square = own[i].x * own[i].x + own[i].y * own[i].y;
      if (at < n) out[at] = sums[i] * exp2_special(-SCALE * square);
    }
  }
}

// points [n, 2], centers [count, 2], weights [count] above zero, at most MOST of them. All coordinates are within 5 of
// zero: an exponent is then above -126, where numbers of full precision end.
extern "C" int density(const float* points, const float* centers, const float* weights, float* out, int64_t n,
                       int count, cudaStream_t stream) {
  if (count < 1 || count > MOST) return cudaErrorInvalidValue;
  gaussians<<<ceil_div(n, BLOCK), THREADS, 0, stream>>>(reinterpret_cast<const float2*>(points),
                                                        reinterpret_cast<const float2*>(centers), weights, out, n,
                                                        count);
  return cudaGetLastError();
}
