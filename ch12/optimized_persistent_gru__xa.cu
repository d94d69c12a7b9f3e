// A GRU's recurrence in one cooperative kernel: weights stay in registers, and blocks wait for each number of a state.
#include "ampere.cuh"

constexpr int WARPS = 8;    // share the sums: each takes slices of 32 numbers of the state
constexpr int THREADS = 32 * WARPS;
constexpr int SLICES = 4;   // of a warp, so that the state has at most 32 * WARPS * SLICES numbers
constexpr int BATCH = 16;   // rows of an mma
constexpr int UNITS = 8;    // columns of an mma: a block makes this many numbers of the state, with three gates each
constexpr int GATES = 3;    // reset, update, new

// Eight halves of row `row` from `first` on, past the L1 cache, which may hold what other blocks have overwritten.
__device__ uint4 eight(const half* matrix, int row, int rows, int first, int width) {
  if (row >= rows || first >= width) return make_uint4(0, 0, 0, 0);
  return __ldcg(reinterpret_cast<const uint4*>(matrix + int64_t(row) * width + first));
}

// What no block has written yet has all bits set: a NaN, but never the one that a conversion to half gives.
__device__ bool missing(uint4 v) {
  const unsigned most = __vmaxu2(__vmaxu2(v.x, v.y), __vmaxu2(v.z, v.w));
  return most >> 16 == 0xffff || (most & 0xffff) == 0xffff;
}

__device__ uint4 eight_now(const half* matrix, int64_t place) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(matrix + place)
               : "memory");
  return v;
}

// The four numbers that mma wants of a lane in a row of 16 may be any four, if both operands agree: a sum has no order.
// So a lane takes eight neighbours of its slice of 32, the first four for one mma and the others for a second.
struct Weights {
  uint4 of[SLICES][GATES];
};

__device__ Weights load(const half* weights, int width) {
  Weights loaded;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int slice = 0; slice < SLICES; ++slice) {
#pragma unroll
    for (int gate = 0; gate < GATES; ++gate) {
      const int row = gate * width + blockIdx.x * UNITS + lane / 4;
      loaded.of[slice][gate] = eight(weights, row, GATES * width, (slice * WARPS + warp) * 32 + lane % 4 * 8, width);
    }
  }
  return loaded;
}

// The block's part of state @ weights: sums[gate][row][unit] of each warp. If `wait`, each number is waited for.
__device__ void products(const Weights& weights, const half* state, bool wait, int batch, int width,
                         float (&sums)[WARPS][GATES][BATCH][UNITS]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = lane / 4;
  uint4 loaded[2 * SLICES];
  bool wanted[2 * SLICES], any;
#pragma unroll
  for (int i = 0; i < 2 * SLICES; ++i) {
    loaded[i] = make_uint4(0, 0, 0, 0);
    wanted[i] = row + i % 2 * 8 < batch && (i / 2 * WARPS + warp) * 32 + lane % 4 * 8 < width;
  }
  do {
#pragma unroll
    for (int i = 0; i < 2 * SLICES; ++i) {
      const int64_t place = int64_t(row + i % 2 * 8) * width + (i / 2 * WARPS + warp) * 32 + lane % 4 * 8;
      if (wanted[i]) loaded[i] = eight_now(state, place);
    }
    any = false;
#pragma unroll
    for (int i = 0; i < 2 * SLICES; ++i) any |= wanted[i] = wait && wanted[i] && missing(loaded[i]);
  } while (any);
  __syncwarp();
  float d[GATES][4] = {};
#pragma unroll
  for (int slice = 0; slice < SLICES; ++slice) {
#pragma unroll
    for (int gate = 0; gate < GATES; ++gate) {
      const uint4 a = loaded[2 * slice], c = loaded[2 * slice + 1], b = weights.of[slice][gate];
      multiply_half(d[gate], {a.x, c.x, a.y, c.y}, b.x, b.y);
      multiply_half(d[gate], {a.z, c.z, a.w, c.w}, b.z, b.w);
    }
  }
#pragma unroll
  for (int gate = 0; gate < GATES; ++gate) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[warp][gate][row + i / 2 * 8][lane % 4 * 2 + i % 2] = d[gate][i];
  }
}

__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// What the gates of one number of the state need besides the products, as loaded: to convert it is to wait for it.
struct Gates {
  half given[GATES], bias[GATES];
};

__device__ Gates gates_of(const half* inputs, const half* bias, int column, int width) {
  Gates gates;
#pragma unroll
  for (int gate = 0; gate < GATES; ++gate) {
    gates.given[gate] = inputs[gate * width + column];
    gates.bias[gate] = bias[gate * width + column];
  }
  return gates;
}

__device__ float advance(const float (&sums)[WARPS][GATES][BATCH][UNITS], const Gates& gates, float old, int row,
                         int unit) {
  float products[GATES], given[GATES];
#pragma unroll
  for (int gate = 0; gate < GATES; ++gate) {
    given[gate] = __half2float(gates.given[gate]);
    products[gate] = __half2float(gates.bias[gate]);
#pragma unroll
    for (int warp = 0; warp < WARPS; ++warp) products[gate] += sums[warp][gate][row][unit];
  }
  const float reset = sigmoid(given[0] + products[0]), update = sigmoid(given[1] + products[1]);
  const float fresh = tanhf(given[2] + reset * products[2]);
  return fresh + update * (old - fresh);
}

__global__ void __launch_bounds__(THREADS) all_steps(const half* inputs, const half* weights, const half* bias,
                                                     const half* start, half* states, int steps, int batch, int width) {
  __shared__ float sums[2][WARPS][GATES][BATCH][UNITS];  // in turn, so that one barrier a step is enough
  const Weights own_weights = load(weights, width);
  const int row = threadIdx.x / UNITS, unit = threadIdx.x % UNITS, column = blockIdx.x * UNITS + unit;
  const int64_t size = int64_t(batch) * width, place = int64_t(row) * width + column;
  float state = row < batch ? __half2float(start[place]) : 0.0f;
  Gates gates = {};
  const half* own = inputs + int64_t(row) * GATES * width;
  if (row < batch) gates = gates_of(own, bias, column, width);
  for (int step = 0; step < steps; ++step) {
    products(own_weights, step == 0 ? start : states + (step - 1) * size, step > 0, batch, width, sums[step % 2]);
    __syncthreads();
    if (row < batch) {
      const half fresh = __float2half(advance(sums[step % 2], gates, state, row, unit));
      state = __half2float(fresh);  // rounded, as in a kernel for each step
      asm volatile("st.relaxed.gpu.global.u16 [%0], %1;" ::"l"(states + step * size + place), "h"(__half_as_ushort(fresh))
                   : "memory");
      own += GATES * size;
      if (step + 1 < steps) gates = gates_of(own, bias, column, width);  // on their way while others end
    }
  }
}

// inputs [steps, batch, 3 * width], weights [3 * width, width], bias [3 * width], start [batch, width], states [steps,
// batch, width]; gates in the order reset, update, new. Width is a multiple of 8, at most 1024; batch is at most 16.
extern "C" int gru(const half* inputs, const half* weights, const half* bias, const half* start, half* states,
                   int steps, int batch, int width, cudaStream_t stream) {
  if (width % UNITS || width > 32 * WARPS * SLICES || batch > BATCH) return cudaErrorInvalidValue;
  TRY(cudaMemsetAsync(states, 0xff, sizeof(half) * steps * batch * width, stream));
  void* arguments[] = {&inputs, &weights, &bias, &start, &states, &steps, &batch, &width};
  return cudaLaunchCooperativeKernel(all_steps, dim3(width / UNITS), dim3(THREADS), arguments, 0, stream);
}
