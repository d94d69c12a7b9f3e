// Group norm in one pass: blocks keep their chunks in shared memory until the group's mean and variance are known, which
// they find by telling each other what their chunks have.
#include "ampere.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int PIECES = 8;  // of eight neighbouring values, in each thread
constexpr int RESIDENT = 6;  // blocks of a multiprocessor
constexpr int CHUNK = 8 * PIECES * THREADS;  // values of a block: 32 KB

// How many values, their mean, and their squared deviations from it, summed.
struct Part {
  float count, mean, squares;
};

// Chan's form of Welford's rule, which is exact.
__device__ Part join(Part a, Part b) {
  const float count = a.count + b.count, share = count > 0.0f ? b.count / count : 0.0f, apart = b.mean - a.mean;
  return {count, a.mean + apart * share, a.squares + b.squares + apart * apart * a.count * share};
}

// The same in every lane of a warp.
__device__ Part join_lanes(Part part) {
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) {
    part = join(part, {__shfl_xor_sync(~0u, part.count, apart), __shfl_xor_sync(~0u, part.mean, apart),
                       __shfl_xor_sync(~0u, part.squares, apart)});
  }
  return part;
}

// What a block has found is one word, so that it is read as it was written. All bits set: nothing is known yet.
constexpr uint64_t UNKNOWN = ~uint64_t(0);

__device__ void publish(uint64_t* state, Part part) {
  const uint64_t word = uint64_t(__float_as_uint(part.squares)) << 32 | __float_as_uint(part.mean);
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(state), "l"(word) : "memory");
}

__device__ Part await(const uint64_t* state, float count) {
  uint64_t word;
  do {
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(state) : "memory");
  } while (word == UNKNOWN);
  return {count, __uint_as_float(uint32_t(word)), __uint_as_float(uint32_t(word >> 32))};
}

struct Piece {
  __nv_bfloat16 value[8];
};

// `aligned`: planes are whole pieces, so each is of one channel, and one access of 16 bytes.
template <bool aligned>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    normalize(const __nv_bfloat16* __restrict__ x, const __nv_bfloat16* __restrict__ gain,
              const __nv_bfloat16* __restrict__ shift, __nv_bfloat16* __restrict__ out, uint64_t* states,
              uint32_t* ticket, int plane, int together, int groups, int chunks, float epsilon) {
  extern __shared__ uint4 memory[];
  auto* staged = memory + threadIdx.x;  // every THREADS-th is this thread's own
  __shared__ Part of_warps[WARPS];
  __shared__ float of_group[2];
  __shared__ uint32_t taken;
  // Blocks number themselves as they begin: all blocks of a group have begun before any of the next.
  if (threadIdx.x == 0) taken = atomicAdd(ticket, 1u) + 1u;  // it begins with all bits set too
  __syncthreads();
  const int group = taken / chunks, chunk = taken % chunks, size = together * plane, first = chunk * CHUNK;
  const int count = min(CHUNK, size - first), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t begin = int64_t(group) * size + first;

  if constexpr (aligned) {
#pragma unroll
    for (int p = 0; p < PIECES; ++p) {
      const int at = 8 * (p * THREADS + threadIdx.x);
      if (at < count) copy_async<16>(staged + p * THREADS, x + begin + at);
    }
  } else {
#pragma unroll 1
    for (int p = 0; p < PIECES; ++p) {
      const int at = 8 * (p * THREADS + threadIdx.x);
      auto* place = reinterpret_cast<__nv_bfloat16*>(staged + p * THREADS);
#pragma unroll 1
      for (int i = 0; i < 8 && at + i < count; ++i) place[i] = x[begin + at + i];
    }
  }
  wait_for_all_copies();

  Part part = {};
#pragma unroll
  for (int p = 0; p < PIECES; ++p) {
    const int here = min(count - 8 * (p * THREADS + int(threadIdx.x)), 8);  // values of this piece
    if (here <= 0) break;
    const auto piece = reinterpret_cast<const Piece&>(staged[p * THREADS]);
    Part more = {float(here), 0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < 8; ++i) more.mean += aligned || i < here ? __bfloat162float(piece.value[i]) : 0.0f;
    more.mean *= aligned ? 0.125f : 1.0f / more.count;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float away = __bfloat162float(piece.value[i]) - more.mean;
      if (aligned || i < here) more.squares = fmaf(away, away, more.squares);
    }
    part = p == 0 ? more : join(part, more);
  }
  part = join_lanes(part);
  if (lane == 0) of_warps[warp] = part;
  __syncthreads();
  if (warp == 0) {
    part = join_lanes(lane < WARPS ? of_warps[lane] : Part{});
    if (lane == 0) publish(states + taken, part);
    Part all = {};
#pragma unroll 1
    for (int other = lane; other < chunks; other += 32) {
      all = join(all, await(states + group * chunks + other, float(min(CHUNK, size - other * CHUNK))));
    }
    all = join_lanes(all);
    if (lane == 0) of_group[0] = all.mean, of_group[1] = rsqrtf(all.squares / size + epsilon);
  }
  __syncthreads();

  const float mean = of_group[0], scale = of_group[1];
  const int first_channel = group % groups * together;
#pragma unroll
  for (int p = 0; p < PIECES; ++p) {
    const int at = 8 * (p * THREADS + threadIdx.x);
    if (at >= count) break;
    if constexpr (aligned) {
      auto piece = reinterpret_cast<const Piece&>(staged[p * THREADS]);
      const int channel = first_channel + (first + at) / plane;
      const float factor = scale * __bfloat162float(gain[channel]), offset = __bfloat162float(shift[channel]);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        piece.value[i] = __float2bfloat16(fmaf(__bfloat162float(piece.value[i]) - mean, factor, offset));
      }
      __stcs(reinterpret_cast<uint4*>(out + begin + at), reinterpret_cast<const uint4&>(piece));
    } else {
      const auto* value = reinterpret_cast<const __nv_bfloat16*>(staged + p * THREADS);
#pragma unroll 1
      for (int i = 0; i < 8 && at + i < count; ++i) {
        const int channel = first_channel + (first + at + i) / plane;
        const float factor = scale * __bfloat162float(gain[channel]), offset = __bfloat162float(shift[channel]);
        out[begin + at + i] = __float2bfloat16(fmaf(__bfloat162float(value[i]) - mean, factor, offset));
      }
    }
  }
}

// `states` has a word for each chunk of each group, and one more for the ticket. A group's blocks wait for each other, so
// as many as a group has must be on the GPU at once: a group too large for that is refused.
extern "C" int group_norm(const __nv_bfloat16* x, const __nv_bfloat16* gain, const __nv_bfloat16* shift,
                          __nv_bfloat16* out, int64_t* states, int64_t places, int64_t images, int64_t channels,
                          int64_t plane, int together, float epsilon, cudaStream_t stream) {
  const int64_t groups = channels / together, chunks = ceil_div(together * plane, CHUNK), all = images * groups * chunks;
  if (places < all + 1 || together * plane > INT32_MAX / 2 || all > INT32_MAX) return cudaErrorInvalidValue;
  const auto kernel = plane % 8 ? normalize<false> : normalize<true>;
  constexpr int BYTES = PIECES * THREADS * sizeof(uint4);
  int resident = 0;
  const auto opt_in = cudaFuncAttributeMaxDynamicSharedMemorySize;
  TRY(cudaFuncSetAttribute(kernel, opt_in, BYTES));
  TRY(count_resident(&resident, kernel, THREADS, BYTES));
  if (chunks > resident) return cudaErrorInvalidValue;
  TRY(cudaMemsetAsync(states, 0xff, (all + 1) * sizeof(uint64_t), stream));
  auto* words = reinterpret_cast<uint64_t*>(states);
  kernel<<<all, THREADS, BYTES, stream>>>(x, gain, shift, out, words, reinterpret_cast<uint32_t*>(words + all),
                                          int(plane), together, int(groups), int(chunks), epsilon);
  return cudaGetLastError();
}
