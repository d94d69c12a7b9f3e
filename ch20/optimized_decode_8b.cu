// A token through a decoder of four-bit weights; each kernel asks for its first weights before it waits.
#include "ampere.cuh"
#include "grid.cuh"

constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr int GROUP = 128;           // weights of a row that share a scale
constexpr int ROWS = 16, PARTS = 4;  // of a tile; groups that a warp takes of a row
constexpr int SHARE = PARTS * WARPS * GROUP, EACH = SHARE / THREADS;  // columns of a block, at most, and of a thread
enum Kind { STORED, GATED, ADDED };  // a product with a normed x, silu(one) * other of two, a sum with what is there

__device__ float warp_sum(float value) {
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffff, value, lanes);
  return value;
}

// Nibbles i and i + 4 of a word as fp16: 1024 + n is 0x6400 with n as the last bits, and 1024 + 16 n has n before them,
// which spares a shift. So rows g + 8 are 16 times too large. The code is n - 8.
__device__ uint32_t widened(uint32_t word, int i) {
  return (word >> 8 * (i / 2) & (i % 2 ? 0x00f000f0 : 0x000f000f)) | 0x64006400;
}

// What a warp multiplies of a tile: lane 4 g + t has, of rows g and g + 8, 16 weights of each 64, in the order of mma.
struct Weights {
  uint4 words[PARTS][2];
  uint32_t scales[PARTS];  // of rows g and g + 8

  __device__ void load(const uint4* all_words, const uint32_t* all_scales, int64_t first, bool there) {
    for (int part = 0; part < PARTS && there; ++part) {
      words[part][0] = __ldcs(all_words + (first + part) * 64 + threadIdx.x % 32);
      words[part][1] = __ldcs(all_words + (first + part) * 64 + 32 + threadIdx.x % 32);
      scales[part] = __ldcs(all_scales + (first + part) * 8 + threadIdx.x % 32 / 4);
    }
  }

  // The products of rows g and g + 8 with x, of which the warp's part begins at `x`, and has these sums.
  __device__ float2 times(const half* x, const float (&x_sums)[PARTS]) const {
    float2 total = {0.0f, 0.0f};
    for (int first = 0; first < PARTS; first += 2) {
      float sum[2][4] = {};
      for (int j = 0; j < 2; ++j) sum[j][0] = -1032.0f * x_sums[first + j], sum[j][2] = -1152.0f * x_sums[first + j];
      for (int i = 0; i < 16; ++i) {  // 16 rows of 16 weights times 16 numbers: all eight columns are alike
        const int j = i % 2, part = first + j, at = i / 2;  // neighbours do not wait for each other
        const uint4 four = reinterpret_cast<const uint4*>(x)[part * 16 + at / 4 * 8 + threadIdx.x % 4 * 2 + at % 4 / 2];
        const uint32_t word = reinterpret_cast<const uint32_t*>(words[part])[at];
        const uint32_t codes[4] = {widened(word, 0), widened(word, 1), widened(word, 2), widened(word, 3)};
        multiply_half(sum[j], codes, at % 2 ? four.z : four.x, at % 2 ? four.w : four.y);
      }
      for (int j = 0; j < 2; ++j) {
        const float2 scale = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(scales[first + j]));
        total.x += scale.x * sum[j][0], total.y += scale.y * sum[j][2] * 0.0625f;
      }
    }
    return total;
  }
};

// words [tiles, groups, 2, 32] of 16 bytes and scales [tiles, groups, 8] of two. A gated tile has 8 rows of the gate, 8
// of up. Blocks in y take `share` groups of columns. x is filled up with zeros to a multiple of eight.
template <Kind KIND>
__global__ void __launch_bounds__(THREADS, 2)
    product(const uint4* words, const uint32_t* scales, const float* x, const bf16* gain, float* out, int outputs,
            int columns, int groups, int share, float epsilon) {
  constexpr int OUTPUTS = KIND == GATED ? ROWS / 2 : ROWS;
  __shared__ __align__(16) half factors[SHARE];
  __shared__ float squares[WARPS], partial[2][WARPS][ROWS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, tiles = (outputs + OUTPUTS - 1) / OUTPUTS;
  const int first = blockIdx.y * share + warp * PARTS;  // group, of a row that zeros fill up to whole parts
  const bool used = first < min(groups, int(blockIdx.y + 1) * share);  // a row can be too short for all warps
  start_next();
  Weights own;
  own.load(words, scales, int64_t(blockIdx.x) * groups + first, used);
  const auto place = [&](int four) { return (four * THREADS + int(threadIdx.x)) * 4; };  // in x, of its four numbers
  const int start = blockIdx.y * share * GROUP;
  float4 values[EACH / 4] = {};
  uint2 gains[EACH / 4] = {};
  for (int i = 0; i < EACH / 4 && KIND != ADDED; ++i) {
    if (place(i) < columns) gains[i] = *reinterpret_cast<const uint2*>(gain + place(i));
  }
  wait_for_last();  // nothing above depends on the kernels before
  for (int i = 0; i < EACH / 4; ++i) {  // what the kernel before wrote is in the L2 cache
    if (start + place(i) < columns) values[i] = __ldcg(reinterpret_cast<const float4*>(x + start + place(i)));
  }
  float square = 0.0f;
  for (int i = 0; i < EACH; ++i) {
    const float number = reinterpret_cast<const float*>(values)[i];
    const float factor = KIND == ADDED ? 1.0f : __bfloat162float(reinterpret_cast<const bf16*>(gains)[i]);
    square += number * number;
    factors[place(i / 4) + i % 4] = __float2half(number * factor);
  }
  square = warp_sum(square);
  if (lane == 0) squares[warp] = square;
  __syncthreads();
  const float norm = rsqrtf(warp_sum(lane < WARPS ? squares[lane] : 0.0f) / columns + epsilon);
  float x_sums[PARTS];
  for (int part = 0; part < PARTS; ++part) {
    const half* const four = factors + (warp * PARTS + part) * GROUP + lane;
    x_sums[part] = __half2float(four[0]) + __half2float(four[32]) + __half2float(four[64]) + __half2float(four[96]);
    x_sums[part] = warp_sum(x_sums[part]);
  }
  for (int tile = blockIdx.x, turn = 0; tile < tiles; tile += gridDim.x, ++turn) {
    Weights following;
    following.load(words, scales, int64_t(tile + gridDim.x) * groups + first, used && tile + gridDim.x < tiles);
    const float2 sums = used ? own.times(factors + warp * PARTS * GROUP, x_sums) : float2{0.0f, 0.0f};
    float(*const all)[ROWS] = partial[turn % 2];
    if (lane % 4 == 0) all[warp][lane / 4] = sums.x, all[warp][lane / 4 + 8] = sums.y;
    __syncthreads();
    own = following;
    if (warp != turn % WARPS) continue;  // warps take turns in adding up
    float total = 0.0f;
    for (int i = 0; i < WARPS; ++i) total += all[i][lane % ROWS];
    if (KIND != ADDED) total *= norm;
    const float up = __shfl_down_sync(0xffffffff, total, 8);
    const int output = tile * OUTPUTS + lane;
    const bool mine = lane < OUTPUTS && output < outputs;
    if (mine && KIND == STORED) out[output] = total;
    if (mine && KIND == GATED) out[output] = total / (1.0f + __expf(-total)) * up;
    if (mine && KIND == ADDED) atomicAdd(out + output, total);
  }
}

constexpr int QUERIES = 4, READERS = 128;  // query heads that share keys; threads of a block of attention
constexpr int TOKENS = 16, STEP = READERS / 32 * TOKENS;  // of the cache, that a warp takes at once, and a block
constexpr int DEPTH = 3, SPLITS = 32;             // such loads on their way or in use; shares of the cache, at most
constexpr int DIM = 128, RECORD = DIM + 4;        // numbers of a head; with the greatest score and the total
constexpr float NOTHING = -1e30f;                 // a score below all others

// A query's sums over up to 32 records, by a warp: a lane has four numbers.
struct Merged {
  float peak, total, sum[4] = {};

  __device__ Merged(const float* records, int count) {
    const int lane = threadIdx.x % 32;
    const float* const last = records + lane * QUERIES * RECORD + DIM;
    const float own = peak = lane < count ? last[0] : NOTHING;
    for (int lanes = 16; lanes > 0; lanes /= 2) peak = fmaxf(peak, __shfl_xor_sync(0xffffffff, peak, lanes));
    const float weight = exp2f(own - peak);
    total = warp_sum(lane < count ? weight * last[1] : 0.0f);
#pragma unroll 16
    for (int i = 0; i < count; ++i) {
      const float4 four = *reinterpret_cast<const float4*>(records + i * QUERIES * RECORD + lane * 4);
      const float of_record = __shfl_sync(0xffffffff, weight, i);
      for (int j = 0; j < 4; ++j) sum[j] += of_record * reinterpret_cast<const float*>(&four)[j];
    }
  }
};

// A block takes a share of the cache for the query heads of one key head (blockIdx.y), the last share with the tokens
// from `context` on, the newest of which it appends. A key head's last block to come adds up all shares. Lane 4 g + t
// has keys of tokens g and g + 8, and values of tokens 2 t, 2 t + 1 and eight further on: numbers 8 g to 8 g + 7 of 64.
__global__ void __launch_bounds__(READERS, 2)
    attend_some(const float* qkv, bf16* keys, bf16* values, const int64_t* position, float* out, float* shares,
                int* arrived, int group, int capacity, int context, float log_base) {
  constexpr int HALF = DIM / 2, PIECES = DIM / 16;  // of 16 bytes, that a lane has of keys, and of values
  extern __shared__ __align__(16) unsigned char memory[];
  auto turned = reinterpret_cast<float(*)[DIM]>(memory + DEPTH * 2 * PIECES * READERS * 16);
  auto found = reinterpret_cast<float(*)[QUERIES][RECORD]>(memory);  // in the buffer's place, once it is read
  const int of = blockIdx.y, heads = gridDim.y * group, splits = gridDim.x;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int share = (context + splits * STEP - 1) / (splits * STEP) * STEP;
  const int begin = min(int(blockIdx.x) * share, context);
  int last = min(begin + share, context);
  keys += int64_t(of) * capacity * DIM, values += int64_t(of) * capacity * DIM;
  const auto place = [&](int stage, int i) { return memory + ((stage * 2 * PIECES + i) * READERS + threadIdx.x) * 16; };
  const auto fill = [&](int stage, int first) {  // each thread reads only what it copied itself
    for (int i = 0; i < PIECES && first < last; ++i) {
      const int token = first + warp * TOKENS;
      const int of_key = token + g + i % 2 * 8, of_value = token + 2 * t + i % 2 + i / 2 % 2 * 8;
      copy_async<16>(place(stage, i), keys + int64_t(min(of_key, last - 1)) * DIM + i / 2 * 32 + t * 8);
      copy_async<16>(place(stage, PIECES + i), values + int64_t(min(of_value, last - 1)) * DIM + i / 4 * 64 + g * 8);
    }
    commit_copies();
  };
  start_next();
  int filled = 0;
  for (; filled < DEPTH && begin + (filled + 1) * STEP <= last; ++filled) fill(filled, begin + filled * STEP);
  constexpr int TURNS = (QUERIES + 2) * HALF / READERS;  // pairs of numbers that a thread turns, all at one place
  const int now = __ldcg(position), at = threadIdx.x % HALF;  // neither it nor earlier tokens change
  float sine, cosine, left[TURNS], right[TURNS];
  sincospif(0.31830989f * now * exp2f(-2.0f * at / DIM * log_base), &sine, &cosine);
  wait_for_last();
  for (int k = 0; k < TURNS; ++k) {
    const int row = k * (READERS / HALF) + threadIdx.x / HALF;  // the group's queries, the key, the value
    const int head = row < group ? of * group + row : heads + min(row - group, 1) * gridDim.y + of;
    left[k] = __ldcg(qkv + head * DIM + at), right[k] = __ldcg(qkv + head * DIM + at + HALF);
  }
  for (int k = 0; k < TURNS; ++k) {
    const int row = k * (READERS / HALF) + threadIdx.x / HALF;
    if (row > group) sine = 0.0f, cosine = 1.0f;
    const float scale = row < group ? rsqrtf(float(DIM)) * 1.44269504f : 1.0f;  // scores are powers of two
    turned[row][at] = (left[k] * cosine - right[k] * sine) * scale;
    turned[row][at + HALF] = (right[k] * cosine + left[k] * sine) * scale;
    if (row >= group && row < group + 2 && blockIdx.x == splits - 1) {
      bf16* const to = (row == group ? keys : values) + int64_t(now) * DIM + at;
      to[0] = __float2bfloat16(turned[row][at]), to[HALF] = __float2bfloat16(turned[row][at + HALF]);
    }
  }
  __syncthreads();
  if (blockIdx.x == splits - 1) last = now + 1;
  for (; filled < DEPTH; ++filled) fill(filled, begin + filled * STEP);
  __nv_bfloat162 query[PIECES * 2];  // of row g % 4: what the others hold reaches no sum that is read
  for (int i = 0; i < PIECES * 2; ++i) {
    const float* const two = &turned[g % QUERIES][i / 4 * 32 + t * 8 + i % 4 * 2];
    query[i] = __floats2bfloat162_rn(two[0], two[1]);
  }
  float peak = NOTHING, total = 0.0f, sum[PIECES][4] = {};  // of query g; numbers of queries 2 t and 2 t + 1
  for (int first = begin, stage = 0; first < last; first += STEP, stage = stage + 1 == DEPTH ? 0 : stage + 1) {
    uint4 words[2 * PIECES];
    wait_for_copies<DEPTH - 1>();
    for (int i = 0; i < 2 * PIECES; ++i) words[i] = *reinterpret_cast<const uint4*>(place(stage, i));
    fill(stage, first + DEPTH * STEP);
    float scores[2][4] = {};  // of tokens 2 t, 2 t + 1 and eight further on; the last two are of no query
    for (int i = 0; i < 2 * PIECES; ++i) {
      const uint32_t* const own = reinterpret_cast<const uint32_t*>(query) + i / 4 * 4 + i % 2 * 2;
      const uint32_t rows[4] = {own[0], 0, own[1], 0};
      multiply(scores[i / 2 % 2], rows, reinterpret_cast<const uint32_t*>(&words[i / 2]) + i % 2 * 2);
    }
    float higher = peak, weights[4];
    for (int i = 0; i < 4; ++i) {
      weights[i] = first + warp * TOKENS + 2 * t + i % 2 + i / 2 * 8 < last ? scores[i / 2][i % 2] : NOTHING;
      higher = fmaxf(higher, weights[i]);
    }
    for (int lanes = 1; lanes < 4; lanes *= 2) higher = fmaxf(higher, __shfl_xor_sync(0xffffffff, higher, lanes));
    const float shrink = exp2f(peak - higher);
    peak = higher, total *= shrink;
    for (float& weight : weights) total += weight = weight == NOTHING ? 0.0f : exp2f(weight - higher);
    const float shrinks[2] = {__shfl_sync(0xffffffff, shrink, 8 * t), __shfl_sync(0xffffffff, shrink, 8 * t + 4)};
    __nv_bfloat162 pairs[2];
    for (int i = 0; i < 2; ++i) pairs[i] = __floats2bfloat162_rn(weights[2 * i], weights[2 * i + 1]);
    for (int i = 0; i < PIECES; ++i) {  // rows g and g + 8 of the transposed values are two neighbouring numbers
      uint32_t own[4], two[4];
      for (int j = 0; j < 4; ++j) {
        own[j] = reinterpret_cast<const uint32_t*>(words + PIECES + i / 4 * 4 + j)[i % 4], sum[i][j] *= shrinks[j % 2];
      }
      for (int j = 0; j < 4; ++j) two[j] = __byte_perm(own[j & 2], own[j | 1], j % 2 ? 0x7632 : 0x5410);
      multiply(sum[i], two, reinterpret_cast<const uint32_t*>(pairs));
    }
  }
  __syncthreads();
  for (int lanes = 1; lanes < 4; lanes *= 2) total += __shfl_xor_sync(0xffffffff, total, lanes);
  if (t == 0 && g < QUERIES) found[warp][g][DIM] = peak, found[warp][g][DIM + 1] = total;
  for (int i = 0; i < PIECES * 4 && t < QUERIES / 2; ++i) {
    found[warp][2 * t + i % 2][i / 16 * 64 + g * 8 + i / 4 % 4 * 2 + i / 2 % 2] = sum[i / 4][i % 4];
  }
  __syncthreads();
  float* const all = shares + int64_t(of) * splits * QUERIES * RECORD + warp * RECORD;  // a warp a query
  const Merged own(&found[0][warp][0], READERS / 32);
  float* const record = all + blockIdx.x * QUERIES * RECORD;
  for (int j = 0; j < 4; ++j) record[lane * 4 + j] = own.sum[j];
  if (lane == 0) record[DIM] = own.peak, record[DIM + 1] = own.total;
  __threadfence();
  __syncthreads();
  if (!__syncthreads_or(threadIdx.x == 0 && atomicAdd(arrived + of, 1) == splits - 1)) return;
  __threadfence();
  if (threadIdx.x == 0) arrived[of] = 0;  // for the next launch
  const Merged every(all, splits);
  float* const of_lane = out + (of * group + warp) * DIM + lane * 4;
  for (int j = 0; j < 4 && warp < group; ++j) of_lane[j] = every.sum[j] / every.total;
}

// Launches a kernel that, from Hopper on, may start before the last one of its stream has ended. All kernels divide the
// L1 cache alike: a multiprocessor changes that only when it is empty.
template <typename... Parameters, typename... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), dim3 blocks, int threads, int bytes, cudaStream_t stream,
                   Arguments... given) {
  int major = 0;
  TRY(query_device(&major, cudaDevAttrComputeCapabilityMajor));
  TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
  cudaLaunchAttribute attribute = {cudaLaunchAttributeProgrammaticStreamSerialization};
  attribute.val.programmaticStreamSerializationAllowed = 1;
  const cudaLaunchConfig_t config = {blocks, dim3(threads), size_t(bytes), stream, &attribute, major >= 9 ? 1u : 0u};
  return cudaLaunchKernelEx(&config, kernel, Parameters(given)...);
}

extern "C" int linear(const int* words, const __nv_bfloat16* scales, const float* x, const __nv_bfloat16* gain,
                      float* out, int kind, int outputs, int columns, float epsilon, cudaStream_t stream) {
  if (kind != ADDED && (columns > SHARE || columns % 8)) return cudaErrorInvalidValue;  // a norm is of whole rows
  int multiprocessors = 0;
  TRY(query_device(&multiprocessors, cudaDevAttrMultiProcessorCount));
  const int tiles = ceil_div(outputs, kind == GATED ? ROWS / 2 : ROWS), shares = ceil_div(columns, SHARE);
  const int groups = ceil_div(columns, PARTS * GROUP) * PARTS, share = ceil_div(groups, shares * PARTS) * PARTS;
  const int room = 2 * multiprocessors / shares;
  const auto kernels = {product<STORED>, product<GATED>, product<ADDED>};
  return launch(kernels.begin()[kind], dim3(tiles < room ? tiles : room, shares), THREADS, 0, stream,
                reinterpret_cast<const uint4*>(words), reinterpret_cast<const uint32_t*>(scales), x, gain, out,
                outputs, columns, groups, share, epsilon);
}

// `shares` has 32 x 4 x 132 numbers for each key head, and `arrived` one, which is zero between launches.
extern "C" int attend(const float* qkv, __nv_bfloat16* keys, __nv_bfloat16* values, const int64_t* position, float* out,
                      float* shares, int* arrived, int heads, int group, int capacity, int context, int dim,
                      float log_base, cudaStream_t stream) {
  if (dim != DIM || group > QUERIES || context < 1) return cudaErrorInvalidValue;
  int multiprocessors = 0;
  TRY(query_device(&multiprocessors, cudaDevAttrMultiProcessorCount));
  const int kept = heads / group, room = ceil_div(2 * multiprocessors, kept);
  const int bytes = DEPTH * DIM / 8 * READERS * 16 + (QUERIES + 2) * DIM * 4;
  return launch(attend_some, dim3(min(room, SPLITS), kept), READERS, bytes, stream, qkv, keys, values, position, out,
                shares, arrived, group, capacity, context, log_base);
}
