// Group norm in one pass: a block has a ring of chunks, some on their way in, and some that wait for the mean and the
// variance of their group, which blocks find by telling each other what their chunks have.
#include "ampere.cuh"

constexpr int WORKERS = 256;
constexpr int WARPS = WORKERS / 32;
constexpr int THREADS = WORKERS + 32;  // and a warp that talks with the other blocks
constexpr int PIECES = 4;  // of eight neighbouring values, in each thread of a chunk
constexpr int CHUNK = 8 * PIECES * WORKERS;  // values
constexpr int AHEAD = 1;  // chunks on their way in
constexpr int LAG = 5;  // turns that a chunk waits for those of other blocks
constexpr int SLOTS = AHEAD + LAG + 1;
constexpr int RESIDENT = 2;  // blocks of a multiprocessor
constexpr int TOGETHER = 4;  // words that a lane asks for at once

struct Part {  // squares: of the deviations from the mean, summed
  float count, mean, squares;
};

// Chan's form of Welford's rule, which is exact.
__device__ Part join(Part a, Part b) {
  const float count = a.count + b.count, share = count > 0.0f ? __fdividef(b.count, count) : 0.0f;
  const float apart = b.mean - a.mean;
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

// What a chunk has is one word, so that it is read as it was written. All bits set: nothing is known yet.
constexpr uint64_t UNKNOWN = ~uint64_t(0);

__device__ void publish(uint64_t* state, Part part) {
  const uint64_t word = uint64_t(__float_as_uint(part.squares)) << 32 | __float_as_uint(part.mean);
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(state), "l"(word) : "memory");
}

__device__ uint64_t look(const uint64_t* state) {
  uint64_t word;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(state) : "memory");
  return word;
}

struct Piece {
  __nv_bfloat16 value[8];
};

// A group of `chunks` chunks; the last one has what is left.
struct Shape {
  int plane, size, chunks;
};

struct Place {  // of a chunk in its group, and how many values it has
  int group, first, count;
};

__device__ Place place_of(int chunk, Shape shape) {
  const int group = uint32_t(chunk) / uint32_t(shape.chunks), first = (chunk - group * shape.chunks) * CHUNK;
  return {group, first, min(CHUNK, shape.size - first)};
}

// What planes are made of: whole chunks, each full and of one channel; whole pieces, likewise; or any number of values.
enum Form { CHUNKS, WHOLE_PIECES, VALUES };

template <Form form>
__device__ void fetch(uint4* slot, const __nv_bfloat16* from, int count) {
  if constexpr (form != VALUES) {
#pragma unroll
    for (int p = 0; p < PIECES; ++p) {
      const int at = 8 * (p * WORKERS + threadIdx.x);
      if (form == CHUNKS || at < count) copy_async<16>(slot + p * WORKERS, from + at);
    }
  } else {
#pragma unroll 1
    for (int p = 0; p < PIECES; ++p) {
      const int at = 8 * (p * WORKERS + threadIdx.x);
      auto* place = reinterpret_cast<__nv_bfloat16*>(slot + p * WORKERS);
#pragma unroll 1
      for (int i = 0; i < 8 && at + i < count; ++i) place[i] = from[at + i];
    }
  }
}

__device__ float2 unpack(uint32_t pair) { return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000)}; }

// What a warp's threads have of a full chunk: all parts are of one size, so halving does where Chan's form divides.
__device__ Part measure_full(const uint4* slot) {
  constexpr int OWN = 8 * PIECES;
  float2 value[OWN / 2];
#pragma unroll
  for (int p = 0; p < PIECES; ++p) {
    const uint4 piece = slot[p * WORKERS];
    value[4 * p] = unpack(piece.x), value[4 * p + 1] = unpack(piece.y);
    value[4 * p + 2] = unpack(piece.z), value[4 * p + 3] = unpack(piece.w);
  }
  float2 sum = {};
#pragma unroll
  for (int i = 0; i < OWN / 2; ++i) sum.x += value[i].x, sum.y += value[i].y;
  float count = OWN, mean = (sum.x + sum.y) * (1.0f / OWN);
  float2 squares = {};
#pragma unroll
  for (int i = 0; i < OWN / 2; ++i) {
    const float x = value[i].x - mean, y = value[i].y - mean;
    squares.x = fmaf(x, x, squares.x), squares.y = fmaf(y, y, squares.y);
  }
  float all = squares.x + squares.y;
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) {
    const float other = __shfl_xor_sync(~0u, mean, apart), away = other - mean;
    all += __shfl_xor_sync(~0u, all, apart) + away * away * (0.5f * count);
    mean = 0.5f * (mean + other), count *= 2;
  }
  return {count, mean, all};
}

// What a warp's threads have of a chunk; the same in every lane.
template <Form form>
__device__ Part measure(const uint4* slot, int count) {
  if constexpr (form == CHUNKS) return measure_full(slot);
  constexpr bool aligned = form == WHOLE_PIECES;
  Part part = {};
#pragma unroll
  for (int p = 0; p < PIECES; ++p) {
    const int here = min(count - 8 * (p * WORKERS + int(threadIdx.x)), 8);  // values of this piece
    if (here <= 0) break;
    const Piece piece = reinterpret_cast<const Piece&>(slot[p * WORKERS]);
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
  return join_lanes(part);
}

// What all of a group has; by one warp, the same in every lane.
__device__ Part listen(const uint64_t* states, Shape shape) {
  const int lane = threadIdx.x % 32;
  Part all = {};
#pragma unroll 1
  for (int begin = lane; begin < shape.chunks; begin += 32 * TOGETHER) {
    uint64_t word[TOGETHER];
    bool missing;
    do {
      missing = false;
#pragma unroll
      for (int i = 0; i < TOGETHER; ++i) {
        word[i] = begin + 32 * i < shape.chunks ? look(states + begin + 32 * i) : 0;
        missing |= word[i] == UNKNOWN;
      }
    } while (missing);
#pragma unroll
    for (int i = 0; i < TOGETHER; ++i) {
      const int count = min(CHUNK, shape.size - (begin + 32 * i) * CHUNK);
      const uint32_t low = uint32_t(word[i]), high = uint32_t(word[i] >> 32);
      if (count > 0) all = join(all, {float(count), __uint_as_float(low), __uint_as_float(high)});
    }
  }
  return join_lanes(all);
}

struct Line {  // on which the values of a channel are put
  float factor, offset;
};

__device__ Line line_of(float mean, float scale, __nv_bfloat16 gain, __nv_bfloat16 shift) {
  const float factor = scale * __bfloat162float(gain);
  return {factor, fmaf(-mean, factor, __bfloat162float(shift))};
}

__device__ float put(float value, Line line) { return fmaf(value, line.factor, line.offset); }

__device__ uint32_t put(uint32_t pair, Line line) {
  const __nv_bfloat162 result = __floats2bfloat162_rn(put(unpack(pair).x, line), put(unpack(pair).y, line));
  return reinterpret_cast<const uint32_t&>(result);
}

// `line` is that of a chunk of one channel. Other chunks find theirs, by mean and scale of their group.
template <Form form>
__device__ void finish(const uint4* slot, __nv_bfloat16* to, Place place, int plane, const __nv_bfloat16* gain,
                       const __nv_bfloat16* shift, float mean, float scale, Line line) {
  const auto look_up = [&](int at) {
    const int channel = uint32_t(place.first + at) / uint32_t(plane);
    line = line_of(mean, scale, gain[channel], shift[channel]);
  };
#pragma unroll
  for (int p = 0; p < PIECES; ++p) {
    const int at = 8 * (p * WORKERS + threadIdx.x);
    if (form != CHUNKS && at >= place.count) break;
    if constexpr (form != VALUES) {
      if (form == WHOLE_PIECES) look_up(at);
      const uint4 piece = slot[p * WORKERS];
      const uint4 result = {put(piece.x, line), put(piece.y, line), put(piece.z, line), put(piece.w, line)};
      __stcs(reinterpret_cast<uint4*>(to + at), result);
    } else {
      const auto* value = reinterpret_cast<const __nv_bfloat16*>(slot + p * WORKERS);
#pragma unroll 1
      for (int i = 0; i < 8 && at + i < place.count; ++i) {
        look_up(at + i);
        to[at + i] = __float2bfloat16(put(__bfloat162float(value[i]), line));
      }
    }
  }
}

// Blocks take chunks in turn. In each turn a block measures one chunk, finishes the one from LAG turns before, and finds
// mean and variance for the one that the next turn will finish. A group has no more chunks than there are blocks, so all
// of that one's group were told of by the turn before this, or are when this begins. A turn ends at its one barrier,
// before which the workers and the warp that talks touch different words of shared memory.
template <Form form>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    normalize(const __nv_bfloat16* __restrict__ x, const __nv_bfloat16* __restrict__ gain,
              const __nv_bfloat16* __restrict__ shift, __nv_bfloat16* __restrict__ out, uint64_t* states, Shape shape,
              int together, int groups, int all, float epsilon) {
  static_assert(LAG >= 3, "a turn's chunks are told of when the next begins, and those after them a turn later");
  extern __shared__ uint4 memory[];
  __shared__ Part of_warps[2][WARPS];
  __shared__ float mean[2], scale[2];
  __shared__ Line line[2];
  const bool works = threadIdx.x < WORKERS;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int turns = int(ceil_div(all - int(blockIdx.x), gridDim.x));
  const auto chunk_of = [&](int turn) { return int(blockIdx.x + turn * gridDim.x); };
  const auto slot_of = [&](int turn) { return memory + turn % SLOTS * PIECES * WORKERS + threadIdx.x; };
  const auto channel_of = [&](Place place) { return uint32_t(place.group) % uint32_t(groups) * together; };
  const auto fetch_turn = [&](int turn) {
    if (turn < turns) {
      const Place place = place_of(chunk_of(turn), shape);
      fetch<form>(slot_of(turn), x + int64_t(place.group) * shape.size + place.first, place.count);
    }
    commit_copies();
  };
#pragma unroll 1
  for (int turn = 0; works && turn < AHEAD; ++turn) fetch_turn(turn);
#pragma unroll 1
  for (int turn = 0; turn < turns + LAG; ++turn) {
    if (works) {
      const int late = turn - LAG;
      fetch_turn(turn + AHEAD);
      wait_for_copies<AHEAD>();
      if (turn < turns) {
        const Part part = measure<form>(slot_of(turn), place_of(chunk_of(turn), shape).count);
        if (lane == 0) of_warps[turn % 2][warp] = part;
      }
      if (late >= 0) {
        const Place place = place_of(chunk_of(late), shape);
        const int channel = channel_of(place);  // the group's first
        __nv_bfloat16* const to = out + int64_t(place.group) * shape.size + place.first;
        finish<form>(slot_of(late), to, place, shape.plane, gain + channel, shift + channel, mean[late % 2],
                     scale[late % 2], line[late % 2]);
      }
    } else {
      const int told = turn - 1, next = turn + 1 - LAG;
      if (told >= 0 && told < turns) {
        const Part part = join_lanes(lane < WARPS ? of_warps[told % 2][lane] : Part{});
        if (lane == 0) publish(states + chunk_of(told), part);
      }
      if (next >= 0 && next < turns) {
        const Place place = place_of(chunk_of(next), shape);
        const int one = channel_of(place) + (form == CHUNKS ? uint32_t(place.first) / uint32_t(shape.plane) : 0);
        const __nv_bfloat16 gain_of_one = gain[one], shift_of_one = shift[one];
        const Part part = listen(states + place.group * shape.chunks, shape);
        if (lane == 0) {
          const float factor = rsqrtf(part.squares / shape.size + epsilon);
          mean[next % 2] = part.mean, scale[next % 2] = factor;
          line[next % 2] = line_of(part.mean, factor, gain_of_one, shift_of_one);
        }
      }
    }
    __syncthreads();
  }
}

// `states` has a word for each chunk of each group. A group's blocks wait for each other, so as many as a group has
// chunks must be on the GPU at once: a group too large for that is refused.
extern "C" int group_norm(const __nv_bfloat16* x, const __nv_bfloat16* gain, const __nv_bfloat16* shift,
                          __nv_bfloat16* out, int64_t* states, int64_t places, int64_t images, int64_t channels,
                          int64_t plane, int together, float epsilon, cudaStream_t stream) {
  const int64_t groups = channels / together, size = together * plane, chunks = ceil_div(size, CHUNK);
  const int64_t all = images * groups * chunks;
  if (places < all || size > INT32_MAX / 2 || all > INT32_MAX / 2) return cudaErrorInvalidValue;
  const auto of_pieces = plane % 8 ? normalize<VALUES> : normalize<WHOLE_PIECES>;
  const auto kernel = plane % CHUNK ? of_pieces : normalize<CHUNKS>;
  constexpr int BYTES = SLOTS * PIECES * WORKERS * sizeof(uint4);
  int resident = 0;
  TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  TRY(count_resident(&resident, kernel, THREADS, BYTES));
  if (chunks > resident) return cudaErrorInvalidValue;
  TRY(cudaMemsetAsync(states, 0xff, all * sizeof(uint64_t), stream));
  const Shape shape = {int(plane), int(size), int(chunks)};
  kernel<<<all < resident ? all : resident, THREADS, BYTES, stream>>>(
      x, gain, shift, out, reinterpret_cast<uint64_t*>(states), shape, together, int(groups), int(all), epsilon);
  return cudaGetLastError();
}
