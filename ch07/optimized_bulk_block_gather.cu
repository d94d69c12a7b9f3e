// Gathers pages by bulk copies: a block for each, of which one thread asks for the page's ways in and out.
#include "tma.cuh"

constexpr int LANES = 32;         // a block is a warp, of which one thread works
constexpr int LARGEST = 1 << 14;  // bytes of a page
constexpr int BARRIERS = 128;     // bytes before the page

__global__ void __launch_bounds__(LANES)
    gather_pages(const __nv_bfloat16* __restrict__ pool, const int64_t* __restrict__ ids,
                 __nv_bfloat16* __restrict__ out, int64_t page) {
  extern __shared__ __align__(128) uint8_t memory[];
  if (threadIdx.x != 0) return;
  const int64_t id = ids[blockIdx.x];
  auto* full = reinterpret_cast<Barrier*>(memory);
  const uint32_t bytes = page * sizeof(__nv_bfloat16);
  init(full, 1);
  publish_barriers();
  arrive_and_expect(full, bytes);
  load_row(memory + BARRIERS, pool + id * page, bytes, full);
  wait(full, 0);
  store_row(out + blockIdx.x * page, memory + BARRIERS, bytes);
  commit_stores();
  wait_for_stores<0>();
}

extern "C" int gather(const __nv_bfloat16* pool, const int64_t* ids, __nv_bfloat16* out, int64_t pages, int64_t page,
                      cudaStream_t stream) {
  const int64_t bytes = page * sizeof(__nv_bfloat16);
  if (bytes % 16 || bytes > LARGEST) return cudaErrorInvalidValue;
  gather_pages<<<pages, LANES, BARRIERS + bytes, stream>>>(pool, ids, out, page);
  return cudaGetLastError();
}
