// Sorts tokens by id. Then each block sums up 64 of them, row by row, and a second kernel joins what it cut in two.
#include "kernel.cuh"

#include <cub/device/device_radix_sort.cuh>

constexpr int THREADS = 256;
constexpr int CHUNK = 64;   // tokens of a block
constexpr int AT_ONCE = 8;  // loads of a thread on their way

// Neighbours that one access moves: four where rows begin at multiples of 16 bytes, else one.
template <int width>
struct alignas(4 * width) Piece {
  float value[width];
};

template <int piece>
__device__ void add(Piece<piece>& sum, const Piece<piece>& more) {
#pragma unroll
  for (int c = 0; c < piece; ++c) sum.value[c] += more.value[c];
}

template <int piece>
__device__ Piece<piece>& at(float* row, int64_t column) {
  return *reinterpret_cast<Piece<piece>*>(row + column);
}

template <int piece>
__device__ Piece<piece> load(const float* __restrict__ row, int64_t column) {
  return *reinterpret_cast<const Piece<piece>*>(row + column);
}

// Sums up a chunk of the sorted tokens. A row whose tokens begin in here goes to `out`, and the rows without tokens
// before it are zeroed on the way: every row is written once. What belongs to a row of an earlier chunk goes to `heads`.
template <int piece>
__global__ void __launch_bounds__(THREADS)
    sum_chunks(const float* __restrict__ grads, const int64_t* __restrict__ ids, const int* __restrict__ tokens_of,
               float* __restrict__ out, float* __restrict__ heads, int64_t tokens, int64_t vocab, int64_t width) {
  __shared__ int64_t id[CHUNK + 2];  // of the token before the chunk, of the chunk, and of the token after it
  __shared__ int token[CHUNK];
  const int64_t first = int64_t(blockIdx.x) * CHUNK;
  const int count = min(int64_t(CHUNK), tokens - first);
  for (int i = threadIdx.x; i < count + 2; i += THREADS) {
    const int64_t place = first + i - 1;
    id[i] = place < 0 ? -1 : place < tokens ? ids[place] : vocab;
    if (i < count) token[i] = tokens_of[first + i];
  }
  __syncthreads();
  const int64_t column = (int64_t(blockIdx.y) * THREADS + threadIdx.x) * piece;
  if (column >= width) return;

  const auto zero = [&](int64_t from, int64_t to) {
#pragma unroll 1
    for (int64_t row = from; row < to; ++row) at<piece>(out + row * width, column) = {};
  };
  bool head = id[0] == id[1];
  Piece<piece> sum{};
  for (int start = 0; start < count; start += AT_ONCE) {
    Piece<piece> in[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      if (start + i < count) in[i] = load<piece>(grads + token[start + i] * width, column);
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      const int j = start + i;
      if (j < count) {
        const int64_t before = id[j], mine = id[j + 1], after = id[j + 2];
        if (before != mine) zero(before + 1, mine);
        add(sum, in[i]);
        if (after != mine || j + 1 == count) {
          at<piece>(head ? heads + blockIdx.x * width : out + mine * width, column) = sum;
          head = false;
          sum = {};
        }
      }
    }
  }
  if (first + count == tokens) zero(id[count] + 1, vocab);
}

// Adds to a row that began in this block's chunk, and goes on, its heads of the chunks behind: always in this order.
template <int piece>
__global__ void __launch_bounds__(THREADS)
    add_heads(const int64_t* __restrict__ ids, const float* __restrict__ heads, float* __restrict__ out, int64_t tokens,
              int64_t width) {
  const int64_t first = int64_t(blockIdx.x) * CHUNK, next = first + CHUNK;
  if (next >= tokens) return;
  const int64_t id = ids[next - 1];
  const bool began_earlier = first > 0 && ids[first - 1] == id;
  if (began_earlier || ids[next] != id) return;
  int64_t chunks = 0;  // behind this one that begin with the same id
  for (int found = THREADS; found == THREADS; chunks += found) {
    const int64_t place = next + (chunks + threadIdx.x) * CHUNK;
    found = __syncthreads_count(place < tokens && ids[place] == id);
  }
  const int64_t column = (int64_t(blockIdx.y) * THREADS + threadIdx.x) * piece;
  if (column >= width) return;
  Piece<piece>& row = at<piece>(out + id * width, column);
  Piece<piece> sum = row;
#pragma unroll AT_ONCE
  for (int64_t i = 1; i <= chunks; ++i) add(sum, load<piece>(heads + (blockIdx.x + i) * width, column));
  row = sum;
}

cudaError_t sort(void* scratch, size_t& bytes, const int64_t* ids, const int* numbers, int64_t* ordered, int* tokens_of,
                 int64_t tokens, int64_t vocab, cudaStream_t stream) {
  int bits = 1;  // of an id: fewer passes than 64 bits would take
  while (int64_t(1) << bits < vocab) ++bits;
  return cub::DeviceRadixSort::SortPairs(scratch, bytes, ids, ordered, numbers, tokens_of, int(tokens), 0, bits, stream);
}

extern "C" int sort_bytes(int64_t* bytes, int64_t tokens, int64_t vocab, cudaStream_t stream) {
  size_t found = 0;
  const cudaError_t error = sort(nullptr, found, nullptr, nullptr, nullptr, nullptr, tokens, vocab, stream);
  *bytes = found;
  return error;
}

extern "C" int sum_by_id(const float* grads, float* out, float* heads, const int64_t* ids, const int* numbers,
                         int64_t* ordered, int* tokens_of, uint8_t* scratch, int64_t scratch_bytes, int64_t tokens,
                         int64_t vocab, int64_t width, cudaStream_t stream) {
  size_t bytes = scratch_bytes;
  TRY(sort(scratch, bytes, ids, numbers, ordered, tokens_of, tokens, vocab, stream));
  const int piece = width % 4 ? 1 : 4;
  const dim3 grid(ceil_div(tokens, CHUNK), ceil_div(width, THREADS * piece));
  const auto sum = piece == 4 ? sum_chunks<4> : sum_chunks<1>;
  const auto join = piece == 4 ? add_heads<4> : add_heads<1>;
  sum<<<grid, THREADS, 0, stream>>>(grads, ordered, tokens_of, out, heads, tokens, vocab, width);
  TRY(cudaGetLastError());
  join<<<grid, THREADS, 0, stream>>>(ordered, heads, out, tokens, width);
  return cudaGetLastError();
}
