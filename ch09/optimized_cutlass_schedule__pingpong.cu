// Two warpgroups have a tile of 128 x 128 each and take turns: one multiplies while the other stores.
// targets: sm_90a (CUTLASS' collectives for wgmma)
// flags: --expt-relaxed-constexpr
#define NDEBUG  // CUTLASS' assertions are calls, and where a kernel has calls ptxas lets no wgmma overlap another
#include <cutlass/cutlass.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "kernel.cuh"

using cute::Int, cute::Shape;
using BlockTile = Shape<Int<128>, Int<128>, Int<64>>;
using Cluster = Shape<Int<2>, Int<1>, Int<1>>;
using Schedule = cutlass::gemm::KernelTmaWarpSpecializedPingpong;
using Store = cutlass::epilogue::TmaWarpSpecialized;
using Arch = cutlass::arch::Sm90;
using Units = cutlass::arch::OpClassTensorOp;
using Number = cutlass::bfloat16_t;
using Rows = cutlass::layout::RowMajor;        // of a and the result
using Columns = cutlass::layout::ColumnMajor;  // of b transposed: its rows, too, run along k
constexpr int PIECE = 8;                       // elements of 16 bytes

using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    Arch, Units, BlockTile, Cluster, cutlass::epilogue::collective::EpilogueTileAuto, float, float, void, Rows, PIECE,
    Number, Rows, PIECE, Store>::CollectiveOp;
using Stages = cutlass::gemm::collective::StageCountAutoCarveout<int(sizeof(typename Epilogue::SharedStorage))>;
using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
    Arch, Units, Number, Rows, PIECE, Number, Columns, PIECE, float, BlockTile, Cluster, Stages,
    Schedule>::CollectiveOp;
using Product = cutlass::gemm::device::GemmUniversalAdapter<
    cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, Mainloop, Epilogue>>;

extern "C" int gemm(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* out, int64_t m, int64_t n, int64_t k,
                    cudaStream_t stream) {
  if (n % PIECE || k % PIECE) return cudaErrorInvalidValue;  // rows must begin at multiples of 16 bytes
  typename Product::Arguments asked{};
  asked.mode = cutlass::gemm::GemmUniversalMode::kGemm;
  asked.problem_shape = {int(m), int(n), int(k), 1};
  asked.mainloop.ptr_A = reinterpret_cast<const Number*>(a);
  asked.mainloop.dA = {k, Int<1>{}, 0};
  asked.mainloop.ptr_B = reinterpret_cast<const Number*>(b);
  asked.mainloop.dB = {k, Int<1>{}, 0};
  asked.epilogue.thread.alpha = 1;
  asked.epilogue.ptr_D = reinterpret_cast<Number*>(out);
  asked.epilogue.dD = {n, Int<1>{}, 0};
  int& device = asked.hw_info.device_id;
  if (const cudaError_t error = cudaGetDevice(&device)) return error;
  const auto count = cudaDevAttrMultiProcessorCount;
  if (const cudaError_t error = cudaDeviceGetAttribute(&asked.hw_info.sm_count, count, device)) return error;
  Product product;
  if (Product::get_workspace_size(asked) || Product::can_implement(asked) != cutlass::Status::kSuccess) {
    return cudaErrorNotSupported;
  }
  if (product.initialize(asked, nullptr, stream) != cutlass::Status::kSuccess) return cudaErrorInvalidConfiguration;
  return product.run(stream) == cutlass::Status::kSuccess ? cudaGetLastError() : cudaErrorLaunchFailure;
}
