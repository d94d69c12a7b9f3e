// Results are written 16 bytes a lane, with a hint that nobody reads them soon. An angle is a fraction of a turn in 64
// bits of an integer: whole turns overflow, which is an exact range reduction. sincospif takes half turns and has no
// slow path.
#include "kernel.cuh"

constexpr int THREADS = 256, STEPS = 16;  // a thread does STEPS positions of a piece of neighbouring frequencies

template <int width>
struct alignas(4 * width) Piece {
  float at[width];
};

// With the hint, lines that are written leave the L2 cache first.
__device__ void store(float* to, Piece<1> piece) { __stcs(to, piece.at[0]); }
__device__ void store(float* to, Piece<4> piece) {
  __stcs(reinterpret_cast<float4*>(to), reinterpret_cast<const float4&>(piece));
}

// Of a fraction of a turn: its sign makes it one from -1/2 to 1/2.
__device__ void sincos_of(uint64_t phase, float* sine, float* cosine) {
  sincospif(float(int32_t(phase >> 32)) * 4.656612873077393e-10f, sine, cosine);  // 2^-31: half turns
}

template <int width>
__global__ void __launch_bounds__(THREADS)
    table_walk(const float* __restrict__ frequencies, float* __restrict__ out, int64_t positions, int half) {
  const int at = (blockIdx.y * blockDim.x + threadIdx.x) * width;
  if (at >= half) return;
  const int64_t first = int64_t(blockIdx.x) * blockDim.y * STEPS + threadIdx.y;
  uint64_t phase[width], turn_of_step[width];
#pragma unroll
  for (int i = 0; i < width; ++i) {
    const double turns = double(frequencies[at + i]) * 0.15915494309189535;  // a position; 1 / 2 pi
    const uint64_t turn = uint64_t((turns - floor(turns)) * 18446744073709551616.0);
    phase[i] = turn * uint64_t(first);
    turn_of_step[i] = turn * blockDim.y;
  }
  float* to = out + first * half + at;
  const int64_t sines = positions * half;
  const int steps = int(min((positions - first + blockDim.y - 1) / blockDim.y, int64_t(STEPS)));
#pragma unroll 4
  for (int step = 0; step < steps; ++step, to += blockDim.y * half) {
    Piece<width> cosine, sine;
#pragma unroll
    for (int i = 0; i < width; ++i) {
      sincos_of(phase[i], &sine.at[i], &cosine.at[i]);
      phase[i] += turn_of_step[i];
    }
    store(to, cosine);
    store(to + sines, sine);
  }
}

template <int width>
cudaError_t launch(const float* frequencies, float* out, int64_t positions, int half, cudaStream_t stream) {
  const int pieces = half / width;
  int lanes = 1;  // of a row
  while (lanes < 32 && lanes < pieces) lanes *= 2;
  const dim3 block(lanes, THREADS / lanes);
  const dim3 grid(ceil_div(positions, block.y * STEPS), ceil_div(pieces, lanes));
  table_walk<width><<<grid, block, 0, stream>>>(frequencies, out, positions, half);
  return cudaGetLastError();
}

// out: cosines (positions, half), then sines.
extern "C" int table(const float* frequencies, float* out, int64_t positions, int half, cudaStream_t stream) {
  return half % 4 ? launch<1>(frequencies, out, positions, half, stream)
                  : launch<4>(frequencies, out, positions, half, stream);
}
