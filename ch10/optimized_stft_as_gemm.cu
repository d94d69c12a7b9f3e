// A transform of 400 numbers as 20 x 20: each thread holds 20 of them in registers, twice, with one exchange between.
#include "kernel.cuh"

constexpr int WINDOW = 400, HOP = 160, MELS = 80, BINS = WINDOW / 2 + 1;
constexpr int SIDE = 20;                   // WINDOW = SIDE * SIDE
constexpr int ROW = SIDE + 1;              // an odd stride: columns and rows are free of bank conflicts
constexpr int STEP = 2 * HOP, GAP = SIDE;  // two frames further on; the gap shifts their banks by one pair's threads
constexpr float FLOOR = 1e-6f, LOG10_OF_2 = 0.30102999566398120f;

// z[0..3] becomes its transform: sum over n of z[n] exp(-2 pi i n k / 4).
__device__ inline void transform(float2& z0, float2& z1, float2& z2, float2& z3) {
  const float2 a = {z0.x + z2.x, z0.y + z2.y}, b = {z0.x - z2.x, z0.y - z2.y};
  const float2 c = {z1.x + z3.x, z1.y + z3.y}, d = {z1.x - z3.x, z1.y - z3.y};
  z0 = {a.x + c.x, a.y + c.y}, z2 = {a.x - c.x, a.y - c.y};
  z1 = {b.x + d.y, b.y - d.x}, z3 = {b.x - d.y, b.y + d.x};
}

// The same of five numbers.
__device__ inline void transform(float2& z0, float2& z1, float2& z2, float2& z3, float2& z4) {
  constexpr float C1 = 0.30901699437494742f, C2 = -0.80901699437494742f;  // cosines of 72 and 144 degrees
  constexpr float S1 = 0.95105651629515357f, S2 = 0.58778525229247313f;   // and their sines
  const float2 a = {z1.x + z4.x, z1.y + z4.y}, b = {z2.x + z3.x, z2.y + z3.y};
  const float2 c = {z1.x - z4.x, z1.y - z4.y}, d = {z2.x - z3.x, z2.y - z3.y};
  const float2 even1 = {z0.x + C1 * a.x + C2 * b.x, z0.y + C1 * a.y + C2 * b.y};
  const float2 even2 = {z0.x + C2 * a.x + C1 * b.x, z0.y + C2 * a.y + C1 * b.y};
  const float2 odd1 = {S1 * c.x + S2 * d.x, S1 * c.y + S2 * d.y};
  const float2 odd2 = {S2 * c.x - S1 * d.x, S2 * c.y - S1 * d.y};
  z0 = {z0.x + a.x + b.x, z0.y + a.y + b.y};
  z1 = {even1.x + odd1.y, even1.y - odd1.x}, z4 = {even1.x - odd1.y, even1.y + odd1.x};
  z2 = {even2.x + odd2.y, even2.y - odd2.x}, z3 = {even2.x - odd2.y, even2.y + odd2.x};
}

// The same of twenty. Four and five have no common factor, so that n = 5 a + 4 b needs no factors between the two.
__device__ inline void transform(float2 (&z)[SIDE]) {
#pragma unroll
  for (int b = 0; b < 5; ++b) {
    transform(z[4 * b], z[(5 + 4 * b) % SIDE], z[(10 + 4 * b) % SIDE], z[(15 + 4 * b) % SIDE]);
  }
  float2 in[SIDE];
#pragma unroll
  for (int n = 0; n < SIDE; ++n) in[n] = z[n];
#pragma unroll
  for (int a = 0; a < 4; ++a) {
    float2 part[5];
#pragma unroll
    for (int b = 0; b < 5; ++b) part[b] = in[(5 * a + 4 * b) % SIDE];
    transform(part[0], part[1], part[2], part[3], part[4]);
#pragma unroll
    for (int b = 0; b < 5; ++b) z[(5 * a + 16 * b) % SIDE] = part[b];
  }
}

constexpr int floats_of_tile(int pairs) {
  const int samples = (pairs + 1) * (STEP + GAP), powers = 2 * pairs * BINS;
  return samples > powers ? samples : powers;
}
constexpr int shared_bytes(int pairs) {
  return pairs * SIDE * ROW * int(sizeof(float2)) + floats_of_tile(pairs) * int(sizeof(float));
}

// Two frames are the real and the imaginary part of one sequence, which SIDE threads transform.
template <int PAIRS>
__global__ void __launch_bounds__(SIDE* PAIRS)
    spectrogram(const float* __restrict__ sound, const float* __restrict__ window, const float2* __restrict__ turns,
                const float* __restrict__ filters, const int* __restrict__ ranges, float* __restrict__ out,
                int frames) {
  constexpr int THREADS = SIDE * PAIRS, FRAMES = 2 * PAIRS, SAMPLES = (FRAMES - 1) * HOP + WINDOW;
  extern __shared__ float2 middle[];  // [PAIRS, SIDE, ROW]
  float* const tile = reinterpret_cast<float*>(middle + PAIRS * SIDE * ROW);  // first the samples, later the powers
  const int thread = threadIdx.x, pair = thread / SIDE, lane = thread % SIDE;
  const int start = blockIdx.x * FRAMES, length = frames * HOP;
  const float* const clip = sound + int64_t(blockIdx.y) * length;
#pragma unroll
  for (int i = 0; i < int(ceil_div(SAMPLES, THREADS)); ++i) {
    const int sample = i * THREADS + thread;
    int at = abs(start * HOP - WINDOW / 2 + sample);        // reflected at the beginning,
    at = at < length ? at : max(2 * length - 2 - at, 0);  // and at the end
    if (sample < SAMPLES) tile[sample + sample / STEP * GAP] = clip[at];
  }
  __syncthreads();

  // n = SIDE a + lane and k = b + SIDE c: first over a, for each b.
  float2 z[SIDE];
  const float* const mine = tile + pair * (STEP + GAP) + lane;
#pragma unroll
  for (int a = 0; a < SIDE; ++a) {
    const int one = SIDE * a, two = SIDE * a + HOP;
    const float weight = window[SIDE * a + lane];
    z[a] = {weight * mine[one + one / STEP * GAP], weight * mine[two + two / STEP * GAP]};
  }
  transform(z);
#pragma unroll
  for (int b = 0; b < SIDE; ++b) {
    const float2 turn = turns[SIDE * b + lane];
    middle[(pair * SIDE + b) * ROW + lane] = {z[b].x * turn.x - z[b].y * turn.y, z[b].x * turn.y + z[b].y * turn.x};
  }
  __syncthreads();

  float2* const row = middle + thread * ROW;
#pragma unroll
  for (int n = 0; n < SIDE; ++n) z[n] = row[n];
  transform(z);  // z[c] is bin lane + SIDE c
#pragma unroll
  for (int c = SIDE / 2; c < SIDE; ++c) row[c] = z[c];
  row[SIDE] = z[0];
  __syncthreads();

  // Of two real sequences in one, bins k and WINDOW - k have the sum of the first and the difference of the second.
  const float2* const mirror = middle + (lane ? thread + SIDE - 2 * lane : thread) * ROW + (lane ? SIDE - 1 : SIDE);
  float* const powers = tile + pair * 2 * BINS;
#pragma unroll
  for (int c = 0; c <= SIDE / 2; ++c) {
    if (c < SIDE / 2 || lane == 0) {
      const float2 other = mirror[-c], sum = {z[c].x + other.x, z[c].y - other.y};
      const float2 difference = {z[c].x - other.x, z[c].y + other.y};
      powers[lane + SIDE * c] = sum.x * sum.x + sum.y * sum.y;
      powers[BINS + lane + SIDE * c] = difference.x * difference.x + difference.y * difference.y;
    }
  }
  __syncthreads();

  const int frame = thread % FRAMES;
  for (int band = thread / FRAMES; band < MELS; band += THREADS / FRAMES) {
    float heard = 0;
    const int end = ranges[2 * band + 1];
    for (int bin = ranges[2 * band]; bin < end; ++bin) {
      heard += filters[band * BINS + bin] * tile[frame * BINS + bin];
    }
    if (start + frame < frames) {
      out[(int64_t(blockIdx.y) * MELS + band) * frames + start + frame] = __log2f(fmaxf(heard, FLOOR)) * LOG10_OF_2;
    }
  }
}

// sound[clips, frames * HOP]; window[WINDOW], halved; turns[SIDE, SIDE, 2]; filters[MELS, BINS] with the range of bins
// of each band that are not zero, ranges[MELS, 2]; out[clips, MELS, frames].
extern "C" int spectrogram(const float* sound, const float* window, const float* turns, const float* filters,
                           const int* ranges, float* out, int clips, int frames, cudaStream_t stream) {
  constexpr int PAIRS = 8;
  TRY(cudaFuncSetAttribute(spectrogram<PAIRS>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes(PAIRS)));
  const dim3 grid(ceil_div(frames, 2 * PAIRS), clips);
  spectrogram<PAIRS><<<grid, SIDE * PAIRS, shared_bytes(PAIRS), stream>>>(
      sound, window, reinterpret_cast<const float2*>(turns), filters, ranges, out, frames);
  return cudaGetLastError();
}
