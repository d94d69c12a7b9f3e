// An angle is a fraction of a turn in 64 bits of an integer. Whole turns overflow, which is an exact range reduction,
// and the next position is one addition away. sincospif takes half turns and has no slow path.
#include "kernel.cuh"

constexpr int LANES = 32, ROWS = 8, STEPS = 16;  // a thread does STEPS positions of one frequency, ROWS apart

__global__ void __launch_bounds__(LANES * ROWS)
    table_walk(const float* __restrict__ frequencies, float* __restrict__ out, int64_t positions, int half) {
  const int at = blockIdx.y * LANES + threadIdx.x;
  if (at >= half) return;
  const int64_t first = int64_t(blockIdx.x) * ROWS * STEPS + threadIdx.y;
  const double turns = double(frequencies[at]) * 0.15915494309189535;  // a position; 1 / 2 pi
  const uint64_t turn = uint64_t((turns - floor(turns)) * 18446744073709551616.0);
  uint64_t phase = turn * uint64_t(first);
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    const int64_t position = first + step * ROWS;
    if (position >= positions) return;
    float sine, cosine;
    sincospif(float(int32_t(phase >> 32)) * 4.656612873077393e-10f, &sine, &cosine);  // 2^-31: from -1 to 1
    out[position * half + at] = cosine;
    out[(positions + position) * half + at] = sine;
    phase += turn * ROWS;
  }
}

// out: cosines (positions, half), then sines.
extern "C" int table(const float* frequencies, float* out, int64_t positions, int half, cudaStream_t stream) {
  const dim3 grid(ceil_div(positions, ROWS * STEPS), ceil_div(half, LANES)), block(LANES, ROWS);
  table_walk<<<grid, block, 0, stream>>>(frequencies, out, positions, half);
  return cudaGetLastError();
}
