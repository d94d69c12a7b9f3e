"""A .cu file to a Python callable: nvcc builds a shared library, ctypes calls it, its signature checks each call.

torch is imported inside the functions that a worker calls, because the parent process finds compilers and headers with
this module and never imports torch.
"""

import ctypes
import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.python.base import toolkit
from common.python.base.manifest import digest
from common.python.base.paths import build_folder
from common.python.base.toolkit import find_nvcc, include_dirs, version_text
from common.python.requirements import arch_of, cuda_targets, declared

RELOCATABLE = "-rdc=true"
ALLOWED = (RELOCATABLE, "--expt-relaxed-constexpr")  # which CUTLASS wants
OBEYED = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "CPATH", "CPLUS_INCLUDE_PATH")  # by nvcc
PLAIN_PATH = re.compile(r"[\w./ +@~-]+")  # nvcc splits other paths, or has a shell expand them
FLAGS = ("-O3", "-std=c++17", "-lineinfo", "--shared", "-Xcompiler", "-fPIC", "-Xptxas", "-v")

POINTERS = {
    "float": "float32",
    "double": "float64",
    "__half": "float16",
    "half": "float16",
    "__nv_bfloat16": "bfloat16",
    "int8_t": "int8",
    "uint8_t": "uint8",
    "int": "int32",
    "int32_t": "int32",
    "int64_t": "int64",
    "__nv_fp8_e4m3": "float8_e4m3fn",
}
SCALARS: dict[str, Any] = {
    "int": ctypes.c_int,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "bool": ctypes.c_bool,
    "cudaStream_t": ctypes.c_void_p,
}
WHOLE = (ctypes.c_int32, ctypes.c_int64)
QUALIFIERS = {"const", "__restrict__", "__restrict"}
# Group 1 is a string or character literal, in which nothing is a comment.
COMMENT = re.compile(r"""("(?:\\.|[^"\\])*"|'(?:\\.[^']*|[^'\\\n])')|//[^\n]*|/\*.*?\*/""", re.DOTALL)
ERROR = re.compile(r"\b(error|fatal)\s*:|ld: cannot find")
SIGNATURE = re.compile(r'extern\s+"C"\s+(?:\w+\s+)*?int\s+(\w+)\s*\(([^)]*)\)')


class CudaError(RuntimeError):
    """A .cu file that does not build, a call that does not fit its signature, or a launch that failed."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of an exported function: a tensor of `dtype`, a scalar of `ctype`, or the stream."""

    name: str
    dtype: str | None = None
    ctype: Any = ctypes.c_void_p


def signature(source: Path, function: str) -> list[Parameter]:
    """The parameters of an exported function, from its declaration in the .cu file.

    Raises CudaError naming what the file exports, or the type that has no counterpart.
    """
    code = COMMENT.sub(lambda found: found[1] or " ", source.read_text())
    exported = {m[1]: m[2] for m in SIGNATURE.finditer(code)}
    if function not in exported:
        raise CudaError(f"{source.name} exports {sorted(exported) or 'nothing'}, not {function!r}")
    parameters = [_parameter(text, source, function) for text in exported[function].split(",") if text.strip()]
    if not parameters or parameters[-1].ctype is not ctypes.c_void_p or parameters[-1].dtype:
        raise CudaError(f"{source.name}: the last parameter of {function} must be cudaStream_t")
    return parameters


def _parameter(text: str, source: Path, function: str) -> Parameter:
    words = [word for word in text.replace("*", " * ").split() if word not in QUALIFIERS]
    match words:
        case [kind, "*", name] if kind in POINTERS and name.isidentifier():
            return Parameter(name, POINTERS[kind])
        case [kind, name] if kind in SCALARS and name.isidentifier():
            return Parameter(name, ctype=SCALARS[kind])
    raise CudaError(
        f"{source.name}: {function} has the parameter {' '.join(words)!r}; a parameter is one of {sorted(SCALARS)} "
        f"or one pointer to one of {sorted(POINTERS)}, and it has a name"
    )


@dataclass(frozen=True)
class Library:
    """A compiled .cu file; beside it, with the suffix .ptx, is its PTX."""

    path: Path
    log: str  # of the compiler, with what ptxas says of each kernel
    cached: bool


def compile_source(source: Path, arch: str, cache: Path | None = None) -> Library:
    """Compile a .cu file for one architecture; cached by all files that it reads, flags, compiler and environment.

    Raises CudaError with the compiler's first error when it does not compile, when the file is for other architectures
    only, or when there is no nvcc.
    """
    nvcc = find_nvcc()
    if nvcc is None and (named := os.environ.get("NVCC")):
        raise CudaError(f"$NVCC is {named}, which is no program: name an nvcc, or unset it to have one looked for")
    if nvcc is None:
        raise CudaError("no nvcc found: install the CUDA toolkit, or the nvidia-cuda-nvcc wheel (./setup.sh does)")
    targets, why = cuda_targets(source)
    if targets and arch not in targets:
        raise CudaError(f"{source.name} is for {', '.join(targets)} only{f': {why}' * bool(why)}; this is {arch}")
    extra = _flags_from(source)
    environment = [os.environ.get(name) for name in OBEYED]
    place = source.resolve().parent  # a copy elsewhere may include another header of its folder
    made_of = hashlib.sha256(f"{place}{arch}{FLAGS}{extra}{environment}{version_text(nvcc)}".encode())
    made_of.update(source.read_bytes())
    folder = cache or build_folder(toolkit.ROOT) / "cuda"
    library = folder / f"{source.parent.name}-{source.stem}-{arch}-{made_of.hexdigest()[:16]}.so"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{library.stem}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two workers may want the same file; one builds it
        known = _kept(library)
        if known is None:
            log, files = _compile(nvcc, source, arch, extra, library)
            digests = {str(file): digest(file) for file in (library, *files)}
            library.with_suffix(".json").write_text(json.dumps({"log": log, "files": digests}))
    return Library(library, log if known is None else known, known is not None)


def _kept(library: Path) -> str | None:
    """The log of a cached library; None if it is not whole, or a file that it was made of has changed."""
    try:
        told = json.loads(library.with_suffix(".json").read_text())
        return told["log"] if all(digest(Path(name)) == was for name, was in told["files"].items()) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _compile(nvcc: Path, source: Path, arch: str, extra: list[str], library: Path) -> tuple[str, list[Path]]:
    """The compiler's log, and the files that were made and read, but for those of the toolkit."""
    code = arch.removeprefix("sm_")
    partial = library.with_suffix(".partial")
    with tempfile.TemporaryDirectory(prefix="benchmark-nvcc-") as name:
        folder = Path(name)
        ours, *theirs = [_plain(place, folder / f"include{i}") for i, place in enumerate(include_dirs())]
        made, dependencies = folder / "made.so", folder / "read.d"
        command = [str(nvcc), *FLAGS, f"-gencode=arch=compute_{code},code=sm_{code}"]
        command += [f"-I{place}" for place in (ours, *theirs)]
        command += [str(_plain(source.parent, folder / "source") / source.name), *extra]
        command += ["--keep", "--keep-dir", name]  # PTX is made anyway
        command += ["-MD", "-MF", str(dependencies), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CudaError(f"{source.name} does not compile for {arch}: {first_error(done.stderr + done.stdout)}")
        ptx = library.with_suffix(".ptx")
        ptx.write_text("".join(file.read_text() for file in folder.glob("*.ptx")))
        named = re.findall(r"(?:\\.|\S)+", dependencies.read_text().replace("\\\n", " ").partition(":")[2])
        read = [Path(re.sub(r"\\(.)", r"\1", file)) for file in named]
        system = ("/usr/include", "/usr/lib", *map(str, theirs), *(str(place.resolve()) for place in theirs))
        own = {file.resolve() for file in read if not str(file).startswith(system)}
        shutil.move(made, partial)
    partial.rename(library)
    return done.stderr + done.stdout, [ptx, *sorted(own)]


def _plain(folder: Path, link: Path) -> Path:
    """The folder, or a link to it where nvcc cannot read its path."""
    if PLAIN_PATH.fullmatch(str(folder)):
        return folder
    link.symlink_to(folder, target_is_directory=True)
    return link


def first_error(said: str) -> str:
    """The first error among the lines of a compiler, an assembler or a linker."""
    lines = said.splitlines() or ["no message"]
    return next((line for line in lines if ERROR.search(line)), lines[0]).strip()


def _flags_from(source: Path) -> list[str]:
    """What a file asks for in its first lines: `// link: cublas` names libraries, `// flags: -rdc=true` an nvcc flag.

    Relocatable device code links cudadevrt, with which kernels launch kernels and graphs. Raises CudaError for another
    flag.
    """
    flags = " ".join(declared(source, "flags")).split()
    if unknown := [flag for flag in flags if flag not in ALLOWED]:
        raise CudaError(f"{source.name}: // flags: names {unknown[0]}; {' and '.join(ALLOWED)} are all it may")
    libraries = [name.strip() for names in declared(source, "link") for name in names.split(",")]
    return flags + [f"-l{name}" for name in libraries + ["cudadevrt"] * (RELOCATABLE in flags)]


def load_cuda(file: str, function: str) -> Callable[..., None]:
    """The exported `function` of the .cu file that stands beside the Python `file` under the same name.

    The callable takes tensors and numbers in declared order, less the stream (torch's current one is passed). It raises
    TypeError when a tensor's dtype, device or contiguity, or the count of arguments, differs from the declaration,
    OverflowError when an integer does not fit its parameter, and CudaError when the function returns a CUDA error.
    """
    import torch

    source = Path(file).with_suffix(".cu")
    parameters = signature(source, function)[:-1]
    major, minor = torch.cuda.get_device_capability()
    entry = getattr(_loaded(source, arch_of(10 * major + minor)), function)
    entry.argtypes, entry.restype = [*(p.ctype for p in parameters), ctypes.c_void_p], ctypes.c_int
    raw_stream, device = torch._C._cuda_getCurrentRawStream, torch.cuda.current_device()
    checks = [_pointer if parameter.dtype else _number for parameter in parameters]

    def call(*arguments: Any) -> None:
        if len(arguments) != len(parameters):
            raise TypeError(f"{function} takes {len(parameters)} arguments, got {len(arguments)}")
        each = zip(checks, arguments, parameters)
        values = [check(argument, parameter, function) for check, argument, parameter in each]
        if code := entry(*values, raw_stream(device)):
            raise CudaError(f"{function} failed with CUDA error {code} ({_error_name(code)})")

    return call


# Once in a process, whatever becomes of the file: to look it up takes a millisecond (on a CPU), in each round.
_loaded = functools.cache(lambda source, arch: ctypes.CDLL(str(compile_source(source, arch).path)))


def _pointer(tensor: Any, parameter: Parameter, function: str) -> int:
    if str(tensor.dtype) != f"torch.{parameter.dtype}":
        raise TypeError(f"{function}: {parameter.name} must be {parameter.dtype}, got {tensor.dtype}")
    if not tensor.is_cuda and not tensor.is_pinned():
        raise TypeError(f"{function}: {parameter.name} must be on the GPU or page-locked, got {tensor.device}")
    if not tensor.is_contiguous():
        raise TypeError(f"{function}: {parameter.name} must be contiguous, its strides are {tensor.stride()}")
    return int(tensor.data_ptr())


def _number(value: Any, parameter: Parameter, function: str) -> Any:
    if parameter.ctype not in WHOLE:  # ctypes checks floats, and takes anything for a bool
        return value
    if not isinstance(value, int):
        raise TypeError(f"{function}: {parameter.name} must be an int, got {value!r}")
    if parameter.ctype(value).value != value:  # ctypes would pass the low bits alone
        raise OverflowError(f"{function}: {parameter.name} is {8 * ctypes.sizeof(parameter.ctype)} bits, got {value}")
    return value


def _error_name(code: int) -> str:
    import torch

    return str(torch.cuda.cudart().cudaGetErrorString(torch.cuda.cudart().cudaError(code)))
