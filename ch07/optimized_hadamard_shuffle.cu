// Hadamard rotation of rows of 128 in registers: eight lanes hold a row, four stages of butterflies stay within a
// lane, and before each of the other three a shuffle brings the two sides of its butterflies into one lane.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int COLUMNS = 128, LANES = 8;        // of a row
constexpr int ROWS = THREADS / LANES;          // of a block
constexpr float SCALE = 0.08838834764831845f;  // 1 / sqrt(128): the rotation keeps a row's length

// 16 bytes of a row: eight neighbours. A row has 16 such pieces.
struct Eight {
  float value[8];
};

__device__ Eight unpack(uint4 piece) {
  const uint32_t pair[4] = {piece.x, piece.y, piece.z, piece.w};
  Eight eight;
#pragma unroll
  for (int i = 0; i < 4; ++i) {  // a bf16 is the upper half of a float
    eight.value[2 * i] = __uint_as_float(pair[i] << 16);
    eight.value[2 * i + 1] = __uint_as_float(pair[i] & 0xffff0000);
  }
  return eight;
}

__device__ uint32_t pack(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(SCALE * first, SCALE * second);
  return reinterpret_cast<const uint32_t&>(pair);
}

__device__ uint4 pack(const Eight& eight) {
  const float* v = eight.value;
  return {pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]), pack(v[6], v[7])};
}

// The stages of neighbours 1, 2 and 4 apart.
__device__ void rotate_within(Eight& eight) {
#pragma unroll
  for (int apart = 1; apart < 8; apart *= 2) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (i & apart) continue;
      const float a = eight.value[i], b = eight.value[i + apart];
      eight.value[i] = a + b;
      eight.value[i + apart] = a - b;
    }
  }
}

__device__ void rotate_across(Eight& low, Eight& high) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float a = low.value[i], b = high.value[i];
    low.value[i] = a + b;
    high.value[i] = a - b;
  }
}

// Of lanes l and l + apart, the lower one keeps its low eight and gets the other's, the upper one keeps its high eight
// and gets the other's: half the values cross, where a butterfly between lanes would send all of them.
__device__ void exchange(Eight& low, Eight& high, int apart) {
  const bool upper = threadIdx.x & apart;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float got = __shfl_xor_sync(~0u, upper ? low.value[i] : high.value[i], apart);
    low.value[i] = upper ? got : low.value[i];
    high.value[i] = upper ? high.value[i] : got;
  }
}

__global__ void __launch_bounds__(THREADS)
    rotate(const __nv_bfloat16* __restrict__ x, __nv_bfloat16* __restrict__ out, int64_t rows) {
  const int lane = threadIdx.x % LANES;
  const int64_t row = int64_t(blockIdx.x) * ROWS + threadIdx.x / LANES;
  const bool there = row < rows;  // the others take part in the shuffles all the same
  const uint4* from = reinterpret_cast<const uint4*>(x) + row * (COLUMNS / 8);
  uint4* to = reinterpret_cast<uint4*>(out) + row * (COLUMNS / 8);

  Eight low = unpack(there ? from[lane] : uint4{}), high = unpack(there ? from[lane + 8] : uint4{});
  rotate_within(low);
  rotate_within(high);
  rotate_across(low, high);  // 64 apart: pieces p and p + 8
#pragma unroll
  for (int apart = 1; apart < LANES; apart *= 2) {  // 8, 16 and 32 apart: pieces p and p + 1, 2 or 4
    exchange(low, high, apart);
    rotate_across(low, high);
  }
  // Each exchange has swapped a bit of the lane with the bit that tells low from high, so the three bits of the lane
  // are now those of 8, 1 and 2 in the piece's number, and the high piece is 4 on.
  const int piece = lane % 2 * 8 + lane / 2;
  if (there) {
    to[piece] = pack(low);
    to[piece + 4] = pack(high);
  }
}

extern "C" int rotate_rows(const __nv_bfloat16* x, __nv_bfloat16* out, int64_t rows, cudaStream_t stream) {
  rotate<<<ceil_div(rows, ROWS), THREADS, 0, stream>>>(x, out, rows);
  return cudaGetLastError();
}
