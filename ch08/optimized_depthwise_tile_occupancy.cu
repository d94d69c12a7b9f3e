// Depthwise 7x7 convolution without a barrier: a warp walks down 128 columns of a plane. Seven rows are on their way to
// its ring in shared memory while it works on one, which goes into the sums of seven rows of outputs at once.
#include "ampere.cuh"

constexpr int TAPS = 7, MARGIN = TAPS / 2;
constexpr int ACROSS = 4, WIDTH = 32 * ACROSS;      // outputs of a lane and of a warp in a row
constexpr int PITCH = WIDTH / 4 + 2;                // float4 of a row, with four columns more at both sides
constexpr int SLOTS = 8, THREADS = 128, BLOCKS = 4;  // rows of a ring; of a block; of a multiprocessor

__global__ void __launch_bounds__(THREADS, BLOCKS)
    convolve_strip(const float* __restrict__ x, const float* __restrict__ filters, float* __restrict__ out,
                   int64_t strips, int of_plane, int channels, int rows, int columns) {
  __shared__ float4 rings[THREADS / 32][SLOTS][PITCH];
  const int64_t strip = blockIdx.x * int64_t(THREADS / 32) + threadIdx.x / 32;
  if (strip >= strips) return;
  const int64_t plane = strip / of_plane;
  const int lane = threadIdx.x % 32, first = int(strip % of_plane) * WIDTH, column = first + lane * ACROSS;
  float4 (&ring)[SLOTS][PITCH] = rings[threadIdx.x / 32];
  x += plane * rows * columns, out += plane * rows * columns;

  // A lane copies its own columns, and two lanes those beside the warp's. What lies outside the plane is zero.
  const int beside = lane == 0 ? first - 4 : first + WIDTH;
  const bool own = column < columns, more = lane < 2, there = beside >= 0 && beside < columns;
  const float* from = x - int64_t(MARGIN) * columns + column;
  const float* from_beside = from + (beside - column);
  const auto start_copy = [&](int row) {
    const bool inside = row >= 0 && row < rows;
    float4* const to = ring[unsigned(row + MARGIN) % SLOTS];
    copy_async<16>(to + 1 + lane, inside && own ? from : x, inside && own ? 16 : 0);
    if (more) copy_async<16>(to + lane * (PITCH - 1), inside && there ? from_beside : x, inside && there ? 16 : 0);
    commit_copies();
    from += columns, from_beside += columns;
  };
  for (int row = -MARGIN; row < SLOTS - 1 - MARGIN; ++row) start_copy(row);

  float weights[TAPS][TAPS];
#pragma unroll
  for (int i = 0; i < TAPS * TAPS; ++i) weights[i / TAPS][i % TAPS] = filters[plane % channels * (TAPS * TAPS) + i];

  float* to = out + column;
  float sums[TAPS][ACROSS] = {};  // those of output row o at o % TAPS
  for (int start = -MARGIN; start < rows + MARGIN; start += TAPS) {
#pragma unroll
    for (int turn = 0; turn < TAPS; ++turn) {  // so that the places of sums are known to the compiler
      const int row = start + turn, ended = row - MARGIN;  // this row ends those of output row `ended`
      if (row >= rows + MARGIN) break;
      wait_for_copies<SLOTS - 2>();
      __syncwarp();  // the others' copies have landed too, and all have read the row before
      const float4* const left = ring[unsigned(row + MARGIN) % SLOTS] + lane;
      float values[3 * 4];
#pragma unroll
      for (int i = 0; i < 3; ++i) *reinterpret_cast<float4*>(values + 4 * i) = left[i];
      start_copy(row + SLOTS - 1);  // to the place of the row before
#pragma unroll
      for (int tap = 0; tap < TAPS; ++tap) {
        float (&sum)[ACROSS] = sums[(turn + TAPS - tap) % TAPS];
#pragma unroll
        for (int i = 0; i < ACROSS; ++i) {
          if (tap == 0) sum[i] = 0.0f;
#pragma unroll
          for (int j = 0; j < TAPS; ++j) sum[i] = fmaf(weights[tap][j], values[4 - MARGIN + i + j], sum[i]);
        }
      }
      const float (&done)[ACROSS] = sums[(turn + 1) % TAPS];
      if (ended >= 0 && own) {
        *reinterpret_cast<float4*>(to) = {done[0], done[1], done[2], done[3]};
        to += columns;
      }
    }
  }
}

// x and out (images, channels, rows, columns), filters (channels, 7, 7). Columns are a multiple of 4.
extern "C" int convolve(const float* x, const float* filters, float* out, int64_t images, int64_t channels,
                        int64_t rows, int64_t columns, cudaStream_t stream) {
  if (columns % 4) return cudaErrorInvalidValue;
  const int64_t of_plane = ceil_div(columns, WIDTH), strips = images * channels * of_plane;
  convolve_strip<<<ceil_div(strips, THREADS / 32), THREADS, 0, stream>>>(x, filters, out, strips, int(of_plane),
                                                                         int(channels), int(rows), int(columns));
  return cudaGetLastError();
}
