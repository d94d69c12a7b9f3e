// Runs a kernel that uses ampere.cuh on a CPU, a block of 256 threads as so many threads. What an instruction does with
// the operands of a warp is restated from the PTX ISA 9.0.
#pragma once
#include <barrier>
#include <cmath>
#include <cstring>
#include <deque>
#include <thread>
#include <vector>

unsigned __cvta_generic_to_shared(const void*);  // for kernel.cuh, which does not call it here
#include "kernel.cuh"
#define __launch_bounds__(...)

constexpr int MOST_THREADS = 256;

struct Lane {
  const uint8_t* row;  // of ldmatrix
  uint32_t a[4], b[2], a_scales, b_scales;
};
struct Warp {
  std::barrier<> all{32};
  Lane lanes[32];
} warps[MOST_THREADS / 32];
struct Copy {
  void* to;
  const void* from;
  int read;
  void land() const { memset(to, 0, 16), memcpy(to, from, read); }
};

alignas(128) uint8_t memory[99 << 10];  // shared memory, as much as sm_120 has for a block
std::barrier<> block(MOST_THREADS);
thread_local dim3 threadIdx, blockIdx;
thread_local std::deque<std::vector<Copy>> groups(1);

void __syncthreads() { block.arrive_and_wait(); }

// Copies of odd threads land at once, those of the others as late as they may: when their group is waited for.
template <int bytes>
void copy_async(void* to, const void* from, int read) {
  const Copy copy{to, from, read};
  threadIdx.x % 2 ? copy.land() : groups.back().push_back(copy);
}
void commit_copies() { groups.emplace_back(); }
template <size_t pending>
void wait_for_copies() {
  for (; groups.size() > pending + 1; groups.pop_front()) {
    for (const Copy& copy : groups.front()) copy.land();
  }
}

// All lanes of a warp show what they have before any of them looks at the others'.
template <typename Show, typename Look>
void exchange(Show show, Look look) {
  Warp& warp = warps[threadIdx.x / 32];
  show(warp.lanes[threadIdx.x % 32]);
  warp.all.arrive_and_wait();
  look(warp.lanes, threadIdx.x % 32);
  warp.all.arrive_and_wait();
}

// "ldmatrix", .m8n8.x4.b16: lane 8 i + r names row r of matrix i, whose bytes 4 (l % 4) on go to lane l of r = l / 4.
void load_matrices(uint32_t* to, const void* row) {
  exchange([&](Lane& lane) { lane.row = static_cast<const uint8_t*>(row); },
           [&](const Lane* lanes, int lane) {
             for (int i = 0; i < 4; ++i) memcpy(&to[i], lanes[8 * i + lane / 4].row + lane % 4 * 4, 4);
           });
}

inline float e2m1(uint32_t word, int i) {
  constexpr float SIZES[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const int code = word >> 4 * i & 15;
  return code & 8 ? -SIZES[code & 7] : SIZES[code];
}
inline float ue4m3(uint32_t word, int i) {
  const int code = word >> 8 * i & 0x7F, exponent = code >> 3;
  return code == 0x7F ? NAN : ldexpf((exponent ? 8 : 0) + (code & 7), (exponent ? exponent : 1) - 10);
}

// "Matrix Fragments for mma.m16n8k64" and "Block Scaling for mma.sync", scale_vec::4X with selectors {0, 0}: where the
// instruction finds element k of a row of a and of b, and the scale of its sixteen.
void multiply_block_scaled(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, uint32_t a_scales,
                           uint32_t b_scales) {
  exchange([&](Lane& lane) { lane = {nullptr, {a[0], a[1], a[2], a[3]}, {b0, b1}, a_scales, b_scales}; },
           [&](const Lane* lanes, int lane) {
             for (int i = 0; i < 4; ++i) {
               const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
               for (int k = 0; k < 64; ++k) {
                 const float of_a = e2m1(lanes[row % 8 * 4 + k % 32 / 8].a[row / 8 + k / 32 * 2], k % 8);
                 const float of_b = e2m1(lanes[column * 4 + k % 32 / 8].b[k / 32], k % 8);
                 const float a_scale = ue4m3(lanes[row % 8 * 4 + row / 8].a_scales, k / 16);
                 sum[i] += of_a * a_scale * of_b * ue4m3(lanes[column * 4].b_scales, k / 16);
               }
             }
           });
}

// Runs a grid's blocks one after another. What no copy has filled is a code of -6 or a scale of NaN.
template <typename Kernel, typename... Arguments>
void launch(int across, int down, Kernel kernel, Arguments... arguments) {
  for (unsigned i = 0; i < unsigned(across * down); ++i) {
    memset(memory, 0xFF, sizeof(memory));
    std::vector<std::jthread> threads;
    for (unsigned thread = 0; thread < MOST_THREADS; ++thread) {
      threads.emplace_back([=] {
        threadIdx = {thread}, blockIdx = {i % across, i / across};
        kernel(arguments...);
      });
    }
  }
}
