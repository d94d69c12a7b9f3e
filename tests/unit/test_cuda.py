"""From a .cu file to a call: its declaration is read, it is built once, its calls are checked."""

import ctypes
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from synthetic_run import program, written

from common.python import cuda
from common.python.base.toolkit import find_header, find_nvcc, find_program, nvcc_version
from common.python.cuda import CudaError, Parameter, compile_source, first_error, load_cuda, signature

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="no nvcc here")
ARCH = "sm_80"
RETURNS = 'extern "C" int f(int64_t a, float b, cudaStream_t stream) { return a + b == 5 ? 0 : 700; }\n'


def parameters(folder: Path, declaration: str, function: str = "f") -> list[Parameter]:
    (folder / "x.cu").write_text(declaration)
    return signature(folder / "x.cu", function)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What nvcc was run for; it is replaced by one that copies the source, for what is tested is when it runs."""
    ran: list[Path] = []

    def compile(nvcc: Path, source: Path, arch: str, extra: list[str], library: Path) -> tuple[str, list[Path]]:
        ran.append(library)
        library.write_text(f"{arch} {extra}")
        return "ptxas says nothing", [source]

    monkeypatch.setattr(cuda, "find_nvcc", lambda: Path("/anywhere/nvcc"))
    monkeypatch.setattr(cuda, "version_text", lambda nvcc: "release 13.0")
    monkeypatch.setattr(cuda, "_compile", compile)
    return ran


def test_a_declaration_is_read_parameter_by_parameter(tmp_path: Path) -> None:
    found = parameters(
        tmp_path,
        """
        __global__ void kernel(const float* a) {}
        extern "C" int other(cudaStream_t s) { return 0; }
        extern "C" int f(const float* __restrict__ a, __nv_bfloat16 *b, uint8_t* const c,
                         int64_t n, float scale, bool flag, int width, double eps, cudaStream_t stream) { return 0; }
        """,
    )
    assert [p.name for p in found] == ["a", "b", "c", "n", "scale", "flag", "width", "eps", "stream"]
    assert [p.dtype for p in found[:4]] == ["float32", "bfloat16", "uint8", None]
    assert [p.ctype.__name__ for p in found[3:]] == ["c_long", "c_float", "c_bool", "c_int", "c_double", "c_void_p"]


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ('extern "C" int g(cudaStream_t s) {', r"x.cu exports \['g'\], not 'f'"),
        ("int f(cudaStream_t s) {", "x.cu exports nothing, not 'f'"),
        ('extern "C" void f(cudaStream_t s) {', "x.cu exports nothing, not 'f'"),
        ('extern "C" int f() {', "the last parameter of f must be cudaStream_t"),
        ('extern "C" int f(cudaStream_t s, int n) {', "the last parameter of f must be cudaStream_t"),
        ('extern "C" int f(float4* a, cudaStream_t s) {', r"f has the parameter 'float4 \* a'; a parameter is one of"),
        ('extern "C" int f(bool* mask, cudaStream_t s) {', "f has the parameter 'bool"),
    ],
)
def test_a_declaration_that_cannot_be_called_is_refused(declaration: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(CudaError, match=message):
        parameters(tmp_path, declaration)


def test_a_library_that_is_not_whole_is_built_anew(tmp_path: Path, compiled: list[Path]) -> None:
    (tmp_path / "x.cu").write_text(RETURNS)
    library = compile_source(tmp_path / "x.cu", "sm_80", tmp_path).path
    for spoilt in (library, library.with_suffix(".json")):
        whole = spoilt.read_bytes()
        spoilt.write_bytes(whole[:-1])
        assert compile_source(tmp_path / "x.cu", "sm_80", tmp_path).path == library
        assert spoilt.read_bytes() == whole
    assert len(compiled) == 3


def test_a_file_for_some_architectures_only_is_built_for_no_other(tmp_path: Path, compiled: list[Path]) -> None:
    (tmp_path / "x.cu").write_text("// It multiplies.\n// targets: sm_90a (wgmma)\n" + RETURNS)
    compile_source(tmp_path / "x.cu", "sm_90a", tmp_path)
    with pytest.raises(CudaError, match=r"^x\.cu is for sm_90a only: wgmma; this is sm_100a$"):
        compile_source(tmp_path / "x.cu", "sm_100a", tmp_path)
    assert len(compiled) == 1


@pytest.mark.parametrize(
    ("said", "first"),
    [
        ("warning: unused\n/x.cu(3): error: identifier\n1 error detected", "/x.cu(3): error: identifier"),
        (
            "x.cu:1:10: fatal error: nope.h: No such file\n  1 | #include",
            "x.cu:1:10: fatal error: nope.h: No such file",
        ),
        ("nvcc fatal   : Unsupported gpu architecture", "nvcc fatal   : Unsupported gpu architecture"),
        (
            "ptxas info : Compiling entry function 'error_k'\nptxas /t.ptx, line 2; error   : No",
            "ptxas /t.ptx, line 2; error   : No",
        ),
        ("/usr/bin/ld: cannot find -lx: No\ncollect2: error: ld returned 1", "/usr/bin/ld: cannot find -lx: No"),
        ("Killed\n", "Killed"),
        ("", "no message"),
    ],
)
def test_the_first_error_is_told_among_what_compilers_say(said: str, first: str) -> None:
    assert first_error(said) == first


def test_a_library_is_built_once_for_all_that_it_depends_on(
    tmp_path: Path, compiled: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "ch07" / "x.cu"
    source.parent.mkdir()

    def built(text: str, arch: str = "sm_80") -> Path:
        source.write_text(text)
        made = [compile_source(source, arch, tmp_path / "cache").path for _ in range(2)]
        assert made == [compiled[-1]] * 2
        return made[0]

    assert built(RETURNS).name.startswith("ch07-x-sm_80-")
    built(RETURNS, "sm_90a")
    assert built("// link: cublas, curand\n" + RETURNS).read_text() == "sm_80 ['-lcublas', '-lcurand']"
    monkeypatch.setattr(cuda, "version_text", lambda nvcc: "release 13.1")
    built(RETURNS)
    monkeypatch.setattr(cuda, "FLAGS", (*cuda.FLAGS, "-G"))
    built(RETURNS)
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-G")
    built(RETURNS)
    assert len(compiled) == len(set(compiled)) == 6


def test_without_a_compiler_the_error_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "find_nvcc", lambda: None)
    monkeypatch.delenv("NVCC", raising=False)
    with pytest.raises(CudaError, match=r"no nvcc found: install the CUDA toolkit.*setup\.sh"):
        compile_source(tmp_path / "x.cu", ARCH, tmp_path)


def test_the_compiler_named_in_the_environment_comes_first_then_the_path_then_the_toolkit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / name for name in ("named/nvcc", "named/ncu", "bin/nvcc", "home/bin/nvcc")]
    for file in files:
        program(file, "")
    monkeypatch.setenv("NVCC", str(tmp_path / "missing"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    assert (find_nvcc(), nvcc_version()) == (None, None), "one that was named is not replaced by another"
    with pytest.raises(CudaError, match=r"\$NVCC is .*/missing, which is no program: name an nvcc, or unset it"):
        compile_source(tmp_path / "x.cu", ARCH, tmp_path)
    monkeypatch.setenv("NVCC", str(tmp_path / "named" / "nvcc"))
    order = [find_nvcc(), find_program("ncu")]
    monkeypatch.delenv("NVCC")
    order.append(find_nvcc())
    (tmp_path / "bin" / "nvcc").unlink()
    assert [*order, find_nvcc()] == files


def test_the_headers_of_the_cutlass_wheel_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = "cutlass_library/source/include/cutlass/for_a_test.h"
    written(tmp_path, {header: "", "cutlass_library/__init__.py": ""})
    assert find_header("cutlass/for_a_test.h") is None
    monkeypatch.syspath_prepend(tmp_path)
    assert find_header("cutlass/for_a_test.h") == tmp_path / header


@needs_nvcc
def test_any_folder_is_compiled_in_and_a_change_of_any_header_builds_anew(tmp_path: Path) -> None:
    folder = tmp_path / "Pat O'Brien, $HOME"
    (folder / "inner").mkdir(parents=True)
    header, source = folder / "inner" / "tile.cuh", folder / "x.cu"
    source.write_text('#include "inner/tile.cuh"\n' + RETURNS)
    header.write_text("constexpr int TILE = 32;\n")
    found = [compile_source(source, ARCH, folder).cached for _ in range(2)]
    header.write_text("constexpr int TILE = 64;\n")
    found.append(compile_source(source, ARCH, folder).cached)
    copy = shutil.copytree(folder, tmp_path / "elsewhere" / folder.name, ignore=shutil.ignore_patterns("*.so"))
    (copy / "inner" / "tile.cuh").write_text("constexpr int TILE = 16;\n")
    found.append(compile_source(copy / "x.cu", ARCH, folder).cached)
    assert found == [False, True, False, False]


BOXES = """#include "tma.cuh"
template <int dimensions> __global__ void load(const __grid_constant__ CUtensorMap map) {
  __shared__ __align__(128) uint8_t box[128];
  __shared__ Barrier landed;
  const int at[dimensions] = {};
  load_box(box, &map, at, &landed);
  wait(&landed, 0);
}
"""


@needs_nvcc
def test_a_box_has_one_to_five_dimensions_and_a_wait_ends_in_debug_builds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameter = "const __grid_constant__ CUtensorMap map"
    kernels = "".join(f"template __global__ void load<{n}>({parameter});\n" for n in range(1, 6))
    (tmp_path / "x.cu").write_text(BOXES + kernels)

    def ptx() -> str:
        return compile_source(tmp_path / "x.cu", "sm_90a", tmp_path).path.with_suffix(".ptx").read_text()

    fast = ptx()
    assert all(f"cp.async.bulk.tensor.{n}d." in fast for n in range(1, 6))
    assert "trap;" not in fast
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-G")
    assert "trap;" in ptx()


@pytest.fixture
def built_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pair's Python file beside its .cu file, on a machine that claims a GPU of sm_80."""
    (tmp_path / "x.cu").write_text('#include "kernel.cuh"\n' + RETURNS)
    (tmp_path / "build").mkdir()
    monkeypatch.setattr(cuda, "compile_source", lambda source, arch: compile_source(source, arch, tmp_path / "build"))
    monkeypatch.setattr(cuda, "_error_name", lambda code: "an illegal memory access was encountered")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0, raising=False)
    return tmp_path / "x.py"


@needs_nvcc
def test_a_built_function_is_called_and_its_error_code_raises(built_here: Path) -> None:
    call = load_cuda(str(built_here), "f")
    call(3, 2.0)
    with pytest.raises(CudaError, match=r"f failed with CUDA error 700 \(an illegal memory access"):
        call(3, 3.0)
    with pytest.raises(TypeError, match="f takes 2 arguments, got 3"):
        call(3, 2.0, 1)
    assert len(list((built_here.parent / "build").glob("*-sm_80-*.so"))) == 1


class OnGpu(SimpleNamespace):
    """As much of a CUDA tensor as a call looks at."""

    is_cuda, device = True, "cuda:0"

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(dtype=tensor.dtype, is_contiguous=tensor.is_contiguous, stride=tensor.stride)
        self.data_ptr = tensor.data_ptr


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (OnGpu(torch.zeros(4, dtype=torch.float64)), "f: a must be float32, got torch.float64"),
        (OnGpu(torch.zeros(4, 3).T), r"f: a must be contiguous, its strides are \(1, 3\)"),
        (torch.zeros(4), "f: a must be on the GPU or page-locked, got cpu"),
    ],
)
def test_a_tensor_of_other_dtype_place_or_strides_is_refused(tensor: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        cuda._pointer(tensor, Parameter("a", "float32"), "f")


def test_a_file_may_ask_for_relocatable_device_code_and_for_no_other_flag(tmp_path: Path) -> None:
    source = tmp_path / "x.cu"
    source.write_text("// Kernels launch kernels.\n// flags: -rdc=true\n// link: cublas\n")
    assert cuda._flags_from(source) == ["-rdc=true", "-lcublas", "-lcudadevrt"]
    source.write_text("// flags: --expt-relaxed-constexpr\n")
    assert cuda._flags_from(source) == ["--expt-relaxed-constexpr"]
    source.write_text("// flags: -o /tmp/elsewhere\n")
    with pytest.raises(CudaError, match=r"// flags: names -o; -rdc=true and --expt-relaxed-constexpr are all it may"):
        cuda._flags_from(source)


def test_an_integer_too_large_for_its_parameter_is_refused() -> None:
    n = Parameter("n", ctype=ctypes.c_int)
    assert cuda._number(7, n, "f") == 7
    with pytest.raises(OverflowError, match="f: n is 32 bits, got 4294967297"):
        cuda._number((1 << 32) + 1, n, "f")
