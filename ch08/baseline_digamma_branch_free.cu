// Digamma by the branches that each number needs: reflection, recurrence, series.
#include "kernel.cuh"
#include "special.cuh"

constexpr int THREADS = 256;

// Neighbours that one thread does: four where there are whole fours, else one.
template <int width>
struct alignas(4 * width) Piece {
  float value[width];
};

__device__ float logarithm(float x) { return log2_special(x) * 0.69314718f; }

// ln x - 1 / 2x - 1 / 12x^2 + 1 / 120x^4 - 1 / 252x^6: exact to fp32 from 6 on.
__device__ float series(float x) {
  const float inverse = reciprocal_special(x), square = inverse * inverse;
  const float tail = square * fmaf(square, fmaf(square, 1.0f / 252, -1.0f / 120), 1.0f / 12);
  return logarithm(x) - fmaf(0.5f, inverse, tail);
}

// pi / tan(pi x), which is what digamma(1 - x) has more than digamma(x): the cosine of pi r over sin(pi r) / pi, with r
// at most 1/2. Both are polynomials of r^2, fitted by Lawson's method; the cosine is off by at most 5e-8.
__device__ float reflection(float x) {
  const float r = x - rintf(x), s = r * r;
  float cosine = fmaf(s, 0.2196968f, -1.3318802f), sine = fmaf(s, 0.024688238f, -0.19042638f);
  cosine = fmaf(s, cosine, 4.058412f), sine = fmaf(s, sine, 0.8117124f);
  cosine = fmaf(s, cosine, -4.934793f), sine = fmaf(s, sine, -1.6449331f);
  cosine = fmaf(s, cosine, 0.99999994f), sine = fmaf(s, sine, 1.0f);
  return cosine * reciprocal_special(r * sine);
}

__device__ float digamma_of(float x) {
  float shift = 0.0f;
  if (x < 0.0f) {
    shift = -reflection(x);
    x = 1.0f - x;
  }
  while (x < 6.0f) {
    shift -= reciprocal_special(x);
    x += 1.0f;
  }
  return series(x) + shift;
}

template <int width>
__global__ void __launch_bounds__(THREADS)
    digamma_all(const Piece<width>* __restrict__ x, Piece<width>* __restrict__ out, int64_t pieces) {
  const int64_t at = int64_t(blockIdx.x) * THREADS + threadIdx.x;
  if (at >= pieces) return;
  Piece<width> piece = x[at];
#pragma unroll
  for (int i = 0; i < width; ++i) piece.value[i] = digamma_of(piece.value[i]);
  out[at] = piece;
}

template <int width>
cudaError_t launch(const float* x, float* out, int64_t n, cudaStream_t stream) {
  const auto* from = reinterpret_cast<const Piece<width>*>(x);
  digamma_all<width><<<ceil_div(n / width, THREADS), THREADS, 0, stream>>>(
      from, reinterpret_cast<Piece<width>*>(out), n / width);
  return cudaGetLastError();
}

extern "C" int digamma(const float* x, float* out, int64_t n, cudaStream_t stream) {
  return n % 4 ? launch<1>(x, out, n, stream) : launch<4>(x, out, n, stream);
}
