// Greedy decoding: a graph makes 16 tokens of each sequence; the host replays it until it reads that all have ended.
#include "kernel.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int TOKENS = 16;  // that a graph makes of each sequence

struct Progress {
  int position, running;
};

__global__ void start(int* tokens, Progress* progress, int batch, int most) {
  const int i = blockIdx.x * THREADS + threadIdx.x;
  if (i < batch * most) tokens[i] = 0;
  if (i == 0) *progress = {0, batch};
}

// A block a sequence: the token of the highest score, and of equal ones the first. Token 0 ends the sequence.
__global__ void choose(const int* last, const int* before, const int* prompt, int* tokens, Progress* progress,
                       int vocabulary, int fewest, int most, int slope, int token_of_graph) {
  __shared__ int64_t bests[WARPS];
  const int at = progress->position + token_of_graph;
  int* own = tokens + blockIdx.x * most;
  const int* given = prompt + 2 * blockIdx.x;
  if (at >= most || (at > 0 && own[at - 1] == 0)) return;
  const int* near = last + int64_t(at > 0 ? own[at - 1] : given[1]) * vocabulary;
  const int* far = before + int64_t(at > 1 ? own[at - 2] : given[at]) * vocabulary;
  int64_t best = -1;
#pragma unroll 8
  for (int token = threadIdx.x; token < vocabulary; token += THREADS) {
    int score = near[token] + far[token];
    if (token == 0) score = at >= fewest ? score + slope * (at - fewest) : -1;
    best = max(best, int64_t(score) << 32 | (0x7fffffff - token));
  }
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) best = max(best, __shfl_xor_sync(0xffffffff, best, lanes));
  if (threadIdx.x % 32 == 0) bests[threadIdx.x / 32] = best;
  __syncthreads();
  if (threadIdx.x > 0) return;
#pragma unroll
  for (int warp = 1; warp < WARPS; ++warp) best = max(best, bests[warp]);
  own[at] = 0x7fffffff - int(best & 0xffffffff);
  if (own[at] == 0) atomicSub(&progress->running, 1);
}

__global__ void advance(Progress* progress) { progress->position += TOKENS; }

// Leaves a graph in page-locked memory, for `decode` to replay and `discard` to free. It has the addresses of all
// tensors, so they must outlive it.
extern "C" int record(const int* last, const int* before, const int* prompt, int* tokens, int* progress, int64_t* host,
                      int batch, int vocabulary, int fewest, int most, int slope, cudaStream_t caller) {
  auto state = reinterpret_cast<Progress*>(progress);
  cudaStream_t stream;  // not the caller's, which may be the default stream: that one refuses to be captured
  TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  for (int token = 0; token < TOKENS; ++token) {
    choose<<<batch, THREADS, 0, stream>>>(last, before, prompt, tokens, state, vocabulary, fewest, most, slope, token);
  }
  advance<<<1, 1, 0, stream>>>(state);
  TRY(cudaMemcpyAsync(host + 1, state, sizeof(Progress), cudaMemcpyDeviceToHost, stream));
  cudaGraph_t graph;
  TRY(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t ready;
  TRY(cudaGraphInstantiate(&ready, graph, 0));
  host[0] = reinterpret_cast<int64_t>(ready);
  TRY(cudaGraphDestroy(graph));
  return cudaStreamDestroy(stream);
}

extern "C" int decode(int* tokens, int* progress, int64_t* host, int batch, int most, cudaStream_t stream) {
  auto seen = reinterpret_cast<const volatile Progress*>(host + 1);
  start<<<ceil_div(batch * most, THREADS), THREADS, 0, stream>>>(tokens, reinterpret_cast<Progress*>(progress), batch,
                                                                 most);
  do {
    TRY(cudaGraphLaunch(reinterpret_cast<cudaGraphExec_t>(host[0]), stream));
    TRY(cudaStreamSynchronize(stream));
  } while (seen->running > 0 && seen->position < most);
  return cudaGetLastError();
}

extern "C" int discard(int64_t executable, cudaStream_t stream) {
  return cudaGraphExecDestroy(reinterpret_cast<cudaGraphExec_t>(executable));
}
