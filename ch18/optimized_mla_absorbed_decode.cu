// Attention of all heads to one latent cache: a warp copies a quarter of the columns, and needs no others for its sums.
#include "ampere.cuh"
#include "special.cuh"

constexpr int WARPS = 4, HEADS = 16, ROTARY = 64;  // of a block; rows of a product; numbers that carry a position
constexpr int KEYS = 32, STAGES = 2, RESIDENT = 2;  // of a tile; tiles in memory; blocks of a multiprocessor

// The same as load_matrices, each matrix transposed.
__device__ __forceinline__ void load_transposed(uint32_t* to, uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row)
               : "memory");
}

__device__ __forceinline__ uint32_t pair(float low, float high, bf16) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(both);
}
__device__ __forceinline__ uint32_t pair(float low, float high, __half) {
  const __half2 both = __floats2half2_rn(low, high);
  return reinterpret_cast<const uint32_t&>(both);
}
__device__ __forceinline__ void product(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, bf16) {
  multiply(sum, a, b0, b1);
}
__device__ __forceinline__ void product(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, __half) {
  multiply_half(sum, a, b0, b1);
}

// Where a row's 16 bytes are, of CHUNKS such pieces: eight rows' pieces of one column lie in different banks.
template <int CHUNKS>
__device__ __forceinline__ int place_of(int row, int chunk) {
  const int turned = CHUNKS >= 8 ? row % 8 : row / (8 / CHUNKS) % CHUNKS;
  return (row * CHUNKS + (chunk ^ turned)) * 16;
}

template <int LATENT>
struct Tile {
  static constexpr int COLUMNS = LATENT / WARPS, OWN = ROTARY / WARPS;  // of a warp: latent ones, and rotary ones
  static constexpr int LATENT_BYTES = KEYS * COLUMNS * 2, BYTES = LATENT_BYTES + KEYS * OWN * 2;
  static constexpr int SCORES = KEYS / 8 * 32;  // of a warp, 16 bytes each
  static constexpr int SHARED = WARPS * (STAGES * BYTES + 2 * SCORES * 16);
};

// The 16 x 16 numbers of a fragment: rows are heads, `from` is the first head's first number.
template <typename Element>
__device__ __forceinline__ void load_queries(uint32_t (&to)[4], const Element* from, int stride, int heads) {
  const int lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int head = g + i % 2 * 8;
    const Element* at = from + head * stride + i / 2 * 8 + c * 2;
    to[i] = head < heads ? *reinterpret_cast<const uint32_t*>(at) : 0;
  }
}

// Block (heads, part, request): 16 heads' attention to `share` keys, and the logs of the weights' totals (base 2).
template <typename Element, int LATENT>
__global__ void __launch_bounds__(WARPS * 32, RESIDENT)
    attend(const Element* __restrict__ q, const Element* __restrict__ q_rotary, const Element* __restrict__ cache,
           const Element* __restrict__ rotary, float* __restrict__ sums_of, float* __restrict__ logs_of, int heads,
           int keys, int share, float scale) {
  using Own = Tile<LATENT>;
  constexpr int COLUMNS = Own::COLUMNS, OWN = Own::OWN, STEPS = COLUMNS / 16, TILES = KEYS / 8;
  extern __shared__ __align__(128) char shared[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, c = lane % 4;
  const int part = blockIdx.y, parts = gridDim.y, first = part * share, end = min(first + share, keys);
  const int64_t request = blockIdx.z, query_of = request * heads + blockIdx.x * HEADS;  // of the first head
  heads -= blockIdx.x * HEADS;
  cache += request * keys * LATENT + warp * COLUMNS, rotary += request * keys * ROTARY + warp * OWN;
  const uint32_t mine = shared_address(shared) + warp * STAGES * Own::BYTES;
  float4* scores = reinterpret_cast<float4*>(shared + WARPS * STAGES * Own::BYTES);  // [2, WARPS, TILES, 32]

  auto load = [&](int tile) {  // this warp's columns; behind the end the last key again
    const uint32_t to = mine + tile % STAGES * Own::BYTES;
    if (first + tile * KEYS < end) {
#pragma unroll
      for (int i = 0; i < KEYS * COLUMNS / 8 / 32; ++i) {
        const int at = i * 32 + lane, row = at / (COLUMNS / 8), chunk = at % (COLUMNS / 8);
        const int64_t key = min(first + tile * KEYS + row, end - 1);
        copy_async<16>(to + place_of<COLUMNS / 8>(row, chunk), cache + key * LATENT + chunk * 8);
      }
#pragma unroll
      for (int i = 0; i < KEYS * OWN / 8 / 32; ++i) {
        const int at = i * 32 + lane, row = at / (OWN / 8), chunk = at % (OWN / 8);
        const int64_t key = min(first + tile * KEYS + row, end - 1);
        copy_async<16>(to + Own::LATENT_BYTES + place_of<OWN / 8>(row, chunk), rotary + key * ROTARY + chunk * 8);
      }
    }
    commit_copies();
  };
#pragma unroll
  for (int tile = 0; tile < STAGES; ++tile) load(tile);

  uint32_t query[STEPS][4], turned[4];
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    load_queries(query[step], q + query_of * LATENT + warp * COLUMNS + step * 16, LATENT, heads);
  }
  load_queries(turned, q_rotary + query_of * ROTARY + warp * OWN, ROTARY, heads);

  float sums[2 * STEPS][4] = {}, total[2] = {}, peak[2] = {-INFINITY, -INFINITY};  // of heads g and g + 8
  for (int tile = 0; first + tile * KEYS < end; ++tile) {
    const uint32_t latent = mine + tile % STAGES * Own::BYTES, turning = latent + Own::LATENT_BYTES;
    wait_for_copies<STAGES - 1>();
    __syncwarp();
    float score[TILES][4] = {};
#pragma unroll
    for (int step = 0; step <= STEPS; ++step) {
#pragma unroll
      for (int two = 0; two < TILES / 2; ++two) {
        const int row = two * 16 + lane / 16 * 8 + lane % 8, chunk = lane / 8 % 2;
        uint32_t b[4];
        if (step < STEPS) {
          load_matrices(b, latent + place_of<COLUMNS / 8>(row, step * 2 + chunk));
        } else {
          load_matrices(b, turning + place_of<OWN / 8>(row, chunk));
        }
        const uint32_t(&a)[4] = step < STEPS ? query[step < STEPS ? step : 0] : turned;
        product(score[two * 2], a, b[0], b[1], Element());
        product(score[two * 2 + 1], a, b[2], b[3], Element());
      }
    }
    float4* shared_scores = scores + tile % 2 * WARPS * Own::SCORES + lane;
#pragma unroll
    for (int n = 0; n < TILES; ++n) {
      shared_scores[warp * Own::SCORES + n * 32] = {score[n][0], score[n][1], score[n][2], score[n][3]};
    }
    __syncthreads();
    float higher[2] = {peak[0], peak[1]};
#pragma unroll
    for (int n = 0; n < TILES; ++n) {
      float sum[4] = {};
#pragma unroll
      for (int w = 0; w < WARPS; ++w) {  // in one order, so that all warps have the same scores
        const float4 other = shared_scores[w * Own::SCORES + n * 32];
        sum[0] += other.x, sum[1] += other.y, sum[2] += other.z, sum[3] += other.w;
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool live = first + tile * KEYS + n * 8 + c * 2 + i % 2 < end;
        score[n][i] = live ? sum[i] * scale : -INFINITY;
        higher[i / 2] = fmaxf(higher[i / 2], score[n][i]);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      higher[half] = fmaxf(higher[half], __shfl_xor_sync(0xffffffff, higher[half], 1));
      higher[half] = fmaxf(higher[half], __shfl_xor_sync(0xffffffff, higher[half], 2));
    }
    if (__any_sync(0xffffffff, higher[0] > peak[0] || higher[1] > peak[1])) {
      const float shrink[2] = {exp2_special(peak[0] - higher[0]), exp2_special(peak[1] - higher[1])};
#pragma unroll
      for (int half = 0; half < 2; ++half) peak[half] = higher[half], total[half] *= shrink[half];
#pragma unroll
      for (int n = 0; n < 2 * STEPS; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[n][i] *= shrink[i / 2];
      }
    }
#pragma unroll
    for (int n = 0; n < TILES; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        score[n][i] = exp2_special(score[n][i] - peak[i / 2]);
        total[i / 2] += score[n][i];
      }
    }
#pragma unroll
    for (int two = 0; two < TILES / 2; ++two) {  // 16 keys
      const uint32_t a[4] = {pair(score[two * 2][0], score[two * 2][1], Element()),
                             pair(score[two * 2][2], score[two * 2][3], Element()),
                             pair(score[two * 2 + 1][0], score[two * 2 + 1][1], Element()),
                             pair(score[two * 2 + 1][2], score[two * 2 + 1][3], Element())};
#pragma unroll
      for (int step = 0; step < STEPS; ++step) {  // 16 columns
        const int row = two * 16 + lane / 8 % 2 * 8 + lane % 8, chunk = step * 2 + lane / 16;
        uint32_t b[4];
        load_transposed(b, latent + place_of<COLUMNS / 8>(row, chunk));
        product(sums[step * 2], a, b[0], b[1], Element());
        product(sums[step * 2 + 1], a, b[2], b[3], Element());
      }
    }
    __syncwarp();  // all lanes have read the tile
    load(tile + STAGES);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    total[half] += __shfl_xor_sync(0xffffffff, total[half], 1);
    total[half] += __shfl_xor_sync(0xffffffff, total[half], 2);
    const int head = g + half * 8;
    if (head >= heads) continue;
    const int64_t slot = (query_of + head) * parts + part;
    float* to = sums_of + slot * LATENT + warp * COLUMNS + c * 2;
#pragma unroll
    for (int n = 0; n < 2 * STEPS; ++n) {
      *reinterpret_cast<float2*>(to + n * 8) = {sums[n][half * 2] / total[half], sums[n][half * 2 + 1] / total[half]};
    }
    if (warp == 0 && c == 0) logs_of[slot] = peak[half] + log2_special(total[half]);
  }
}

// Block `query`: the attention to all keys is that to the parts, weighted by their totals.
template <typename Element>
__global__ void merge(const float* __restrict__ sums_of, const float* __restrict__ logs_of, Element* __restrict__ out,
                      int parts, int latent) {
  const int64_t query = blockIdx.x;
  const float* logs = logs_of + query * parts;
  float peak = -INFINITY, all = 0.0f;
  for (int part = 0; part < parts; ++part) peak = fmaxf(peak, logs[part]);
  for (int part = 0; part < parts; ++part) all += exp2_special(logs[part] - peak);
  for (int column = threadIdx.x; column < latent; column += blockDim.x) {
    float sum = 0.0f;
    for (int part = 0; part < parts; ++part) {
      sum += exp2_special(logs[part] - peak) * sums_of[(query * parts + part) * latent + column];
    }
    out[query * latent + column] = Element(sum / all);
  }
}

template <typename Element, int LATENT>
int start(const Element* q, const Element* q_rotary, const Element* cache, const Element* rotary, float* sums,
          float* logs, Element* out, int requests, int heads, int keys, int parts, int share, float scale,
          cudaStream_t stream) {
  constexpr int bytes = Tile<LATENT>::SHARED;
  TRY(cudaFuncSetAttribute(attend<Element, LATENT>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  const dim3 grid((heads + HEADS - 1) / HEADS, parts, requests);
  attend<Element, LATENT><<<grid, WARPS * 32, bytes, stream>>>(q, q_rotary, cache, rotary, sums, logs, heads, keys,
                                                               share, scale);
  TRY(cudaGetLastError());
  merge<<<requests * heads, 256, 0, stream>>>(sums, logs, out, parts, LATENT);
  return cudaGetLastError();
}

template <typename Element>
int launch(const Element* q, const Element* q_rotary, const Element* cache, const Element* rotary, float* sums,
           float* logs, Element* out, int requests, int heads, int keys, int latent, int parts, int share, float scale,
           cudaStream_t stream) {
  const bool whole = requests > 0 && heads > 0 && parts > 0 && share > 0;
  if (!whole || int64_t(parts - 1) * share >= keys || int64_t(parts) * share < keys) return cudaErrorInvalidValue;
  const auto kernels = latent == 512 ? start<Element, 512> : latent == 128 ? start<Element, 128> : nullptr;
  if (kernels == nullptr) return cudaErrorInvalidValue;
  return kernels(q, q_rotary, cache, rotary, sums, logs, out, requests, heads, keys, parts, share, scale, stream);
}

// q [requests, heads, latent], q_rotary [requests, heads, 64], cache [requests, keys, latent], rotary [requests, keys,
// 64], sums [requests, heads, parts, latent], logs [requests, heads, parts], out as q. No part is empty.
extern "C" int attend_bfloat16(const __nv_bfloat16* q, const __nv_bfloat16* q_rotary, const __nv_bfloat16* cache,
                               const __nv_bfloat16* rotary, float* sums, float* logs, __nv_bfloat16* out, int requests,
                               int heads, int keys, int latent, int parts, int share, float scale,
                               cudaStream_t stream) {
  return launch(q, q_rotary, cache, rotary, sums, logs, out, requests, heads, keys, latent, parts, share, scale,
                stream);
}

extern "C" int attend_float16(const __half* q, const __half* q_rotary, const __half* cache, const __half* rotary,
                              float* sums, float* logs, __half* out, int requests, int heads, int keys, int latent,
                              int parts, int share, float scale, cudaStream_t stream) {
  return launch(q, q_rotary, cache, rotary, sums, logs, out, requests, heads, keys, latent, parts, share, scale,
                stream);
}
