// Gathers pages by bulk copies: one thread asks for them, and no page passes through a register.
#include "tma.cuh"

#include <algorithm>

constexpr int LANES = 32;         // a block is a warp, of which one thread works
constexpr int STAGES = 6;         // places of the ring
constexpr int LEAVING = 2;        // of them, those whose page may still be on its way out; the others are being filled
constexpr int LARGEST = 1 << 14;  // bytes of a page: the ring has 96 KiB at most, of which Hopper holds two
constexpr int BARRIERS = 128;     // bytes before the ring

// A block draws the number of its next page, so that none ends before the others. Stage i % STAGES holds the block's page
// i. `drawn` is zero at first, and again at the end.
__global__ void __launch_bounds__(LANES)
    gather_pages(const __nv_bfloat16* __restrict__ pool, const int64_t* __restrict__ ids,
                 __nv_bfloat16* __restrict__ out, int* __restrict__ drawn, int64_t pages, int64_t page) {
  extern __shared__ __align__(128) uint8_t memory[];
  if (threadIdx.x != 0) return;
  auto* full = reinterpret_cast<Barrier*>(memory);
  const uint32_t bytes = page * sizeof(__nv_bfloat16);
  const auto place = [&](int i) { return memory + BARRIERS + i % STAGES * bytes; };
  const auto load = [&](int i, int64_t id) {
    arrive_and_expect(&full[i % STAGES], bytes);
    load_row(place(i), pool + id * page, bytes, &full[i % STAGES]);
  };

  for (int stage = 0; stage < STAGES; ++stage) init(&full[stage], 1);
  publish_barriers();
  auto* numbers = reinterpret_cast<int64_t*>(full + STAGES);  // of the pages in the ring
  int asked = 0;            // pages asked for
  int64_t number = atomicAdd(drawn, 1);
  const auto ask = [&] {  // asks for the page that was drawn, and draws the next
    if (number >= pages) return;
    const int64_t id = ids[number];
    numbers[asked % STAGES] = number;
    number = atomicAdd(drawn, 1);
    load(asked++, id);
  };
  for (int i = 0; i < STAGES - LEAVING; ++i) ask();
  for (int i = 0; i < asked; ++i) {
    wait(&full[i % STAGES], i / STAGES % 2);
    store_row(out + numbers[i % STAGES] * page, place(i), bytes);
    commit_stores();
    wait_for_stores<LEAVING>();  // page i - LEAVING has left its place, which is that of the next
    ask();
  }
  if (number == pages + gridDim.x - 1) *drawn = 0;  // the last of all to draw in vain
  wait_for_stores<0>();
}

extern "C" int gather(const __nv_bfloat16* pool, const int64_t* ids, __nv_bfloat16* out, int* drawn, int64_t pages,
                      int64_t page, cudaStream_t stream) {
  const int64_t bytes = page * sizeof(__nv_bfloat16);
  if (bytes % 16 || bytes > LARGEST) return cudaErrorInvalidValue;
  const int memory = BARRIERS + STAGES * bytes;
  TRY(cudaFuncSetAttribute(gather_pages, cudaFuncAttributeMaxDynamicSharedMemorySize, memory));
  int multiprocessors, blocks;
  TRY(query_device(&multiprocessors, cudaDevAttrMultiProcessorCount));
  TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, gather_pages, LANES, memory));
  const int64_t grid = std::min(pages, int64_t(multiprocessors) * std::min(blocks, 2));
  gather_pages<<<grid, LANES, memory, stream>>>(pool, ids, out, drawn, pages, page);
  return cudaGetLastError();
}
