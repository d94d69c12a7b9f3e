// Depthwise 5 x 5: threads copy a tile and its border to shared memory, with a test of bounds for every number.
#include "kernel.cuh"

constexpr int TILE_W = 128, TILE_H = 32;  // of the result, a block
constexpr int HALO = 2, TAPS = 2 * HALO + 1;
constexpr int SIDE = 4;  // columns of the box to the left and to the right of the tile, in whole pieces of 16 bytes
constexpr int BOX_W = TILE_W + 2 * SIDE, BOX_H = TILE_H + 2 * HALO;
constexpr int WARPS = 8, THREADS = 32 * WARPS;
constexpr int ROWS = TILE_H / WARPS;  // of a thread's results, four columns each

// Adds up what the box holds for rows `first`, `first` + 1, ... of the tile and columns 4 lane to 4 lane + 3.
__device__ void convolve(float (&sum)[ROWS][4], const float* box, const float (&weight)[TAPS * TAPS], int first,
                         int lane) {
#pragma unroll
  for (int y = 0; y < ROWS + TAPS - 1; ++y) {
    const float* row = box + (first + y) * BOX_W + SIDE + 4 * lane;
    const float2 left = *reinterpret_cast<const float2*>(row - HALO);
    const float4 own = *reinterpret_cast<const float4*>(row);
    const float2 right = *reinterpret_cast<const float2*>(row + 4);
    const float in[8] = {left.x, left.y, own.x, own.y, own.z, own.w, right.x, right.y};
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      if (y < r || y >= r + TAPS) continue;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
#pragma unroll
        for (int x = 0; x < TAPS; ++x) sum[r][c] += weight[(y - r) * TAPS + x] * in[c + x];
      }
    }
  }
}

// Stores the results within the image; its rows are whole pieces of four.
__device__ void store(const float (&sum)[ROWS][4], float* out, int row, int column, int height, int width) {
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    if (row + r < height && column < width) {
      *reinterpret_cast<float4*>(out + int64_t(row + r) * width + column) = {sum[r][0], sum[r][1], sum[r][2],
                                                                             sum[r][3]};
    }
  }
}

__global__ void __launch_bounds__(THREADS)
    depthwise_tiles(const float* __restrict__ x, const float* __restrict__ weights, float* __restrict__ out,
                    int channels, int height, int width) {
  __shared__ __align__(16) float box[BOX_H * BOX_W];
  const int left = blockIdx.x * TILE_W, top = blockIdx.y * TILE_H, plane = blockIdx.z;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const float* image = x + int64_t(plane) * height * width;
  for (int r = warp; r < BOX_H; r += WARPS) {
    const int row = top - HALO + r;
#pragma unroll
    for (int c = lane; c < BOX_W; c += 32) {
      const int column = left - SIDE + c;
      const bool inside = row >= 0 && row < height && column >= 0 && column < width;
      box[r * BOX_W + c] = inside ? image[int64_t(row) * width + column] : 0.0f;
    }
  }
  float weight[TAPS * TAPS], sum[ROWS][4] = {};
#pragma unroll
  for (int i = 0; i < TAPS * TAPS; ++i) weight[i] = weights[plane % channels * TAPS * TAPS + i];
  __syncthreads();

  convolve(sum, box, weight, warp * ROWS, lane);
  store(sum, out + int64_t(plane) * height * width, top + warp * ROWS, left + 4 * lane, height, width);
}

extern "C" int depthwise(const float* x, const float* weight, float* out, int64_t batch, int64_t channels,
                         int64_t height, int64_t width, cudaStream_t stream) {
  if (width % 4) return cudaErrorInvalidValue;
  const dim3 grid(ceil_div(width, TILE_W), ceil_div(height, TILE_H), batch * channels);
  depthwise_tiles<<<grid, THREADS, 0, stream>>>(x, weight, out, channels, height, width);
  return cudaGetLastError();
}
