// Gathers pages by bulk copies: one thread asks for them, and no page passes through a register.
#include "tma.cuh"

#include <algorithm>

constexpr int LANES = 32;         // a block is a warp, of which one thread works
constexpr int STAGES = 12;        // places of the ring
constexpr int LEAVING = 4;        // of them, those whose page may still be on its way out; the others are being filled
constexpr int LARGEST = 1 << 12;  // bytes of a page: a ring has 48 KiB at most, of which Hopper holds four
constexpr int BARRIERS = 128;     // bytes before the ring

// Pages are dealt out in turn, so those on their way out at a time are neighbours in `out`. Stage i % STAGES holds the
// block's page i.
__global__ void __launch_bounds__(LANES)
    gather_pages(const __nv_bfloat16* __restrict__ pool, const int64_t* __restrict__ ids,
                 __nv_bfloat16* __restrict__ out, int64_t pages, int64_t page) {
  extern __shared__ __align__(128) uint8_t memory[];
  if (threadIdx.x != 0) return;
  auto* full = reinterpret_cast<Barrier*>(memory);
  const uint32_t bytes = page * sizeof(__nv_bfloat16);
  const int count = (pages - blockIdx.x + gridDim.x - 1) / gridDim.x;
  const auto number = [&](int i) { return blockIdx.x + int64_t(i) * gridDim.x; };
  const auto place = [&](int i) { return memory + BARRIERS + i % STAGES * bytes; };
  const auto load = [&](int i, int64_t id) {
    arrive_and_expect(&full[i % STAGES], bytes);
    load_row(place(i), pool + id * page, bytes, &full[i % STAGES]);
  };

  for (int stage = 0; stage < STAGES; ++stage) init(&full[stage], 1);
  publish_barriers();
  for (int i = 0; i < STAGES - LEAVING && i < count; ++i) load(i, ids[number(i)]);
  for (int i = 0; i < count; ++i) {
    const int next = i + STAGES - LEAVING;
    const int64_t id = next < count ? ids[number(next)] : 0;  // on its way while we wait
    wait(&full[i % STAGES], i / STAGES % 2);
    store_row(out + number(i) * page, place(i), bytes);
    commit_stores();
    wait_for_stores<LEAVING>();  // page i - LEAVING has left its place, which is that of page `next`
    if (next < count) load(next, id);
  }
  wait_for_stores<0>();
}

extern "C" int gather(const __nv_bfloat16* pool, const int64_t* ids, __nv_bfloat16* out, int64_t pages, int64_t page,
                      cudaStream_t stream) {
  const int64_t bytes = page * sizeof(__nv_bfloat16);
  if (bytes % 16 || bytes > LARGEST) return cudaErrorInvalidValue;
  const int memory = BARRIERS + STAGES * bytes;
  TRY(cudaFuncSetAttribute(gather_pages, cudaFuncAttributeMaxDynamicSharedMemorySize, memory));
  int multiprocessors, blocks;
  TRY(query_device(&multiprocessors, cudaDevAttrMultiProcessorCount));
  TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, gather_pages, LANES, memory));
  const int64_t grid = std::min(pages, int64_t(multiprocessors) * std::min(blocks, 4));
  gather_pages<<<grid, LANES, memory, stream>>>(pool, ids, out, pages, page);
  return cudaGetLastError();
}
