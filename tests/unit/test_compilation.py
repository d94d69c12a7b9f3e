"""What is compiled, what is skipped and why, and when a kept result still holds: decided without a compiler."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from synthetic_run import written

from common.python import requirements
from common.python.base import toolkit
from common.python.build import compilation
from common.python.build.compilation import compile_pairs
from common.python.build.record import Compiled, KernelUse
from common.python.corpus.discovery import find_pairs
from common.python.cuda import Library

SENTENCE = '"""Each thread copies one element."""\n'
CUDA = SENTENCE + "from common.python.cuda import load_cuda\nfrom common.python.requirements import needs\n"
TRITON = SENTENCE + "import triton\nfrom common.python.requirements import needs\n"
USE = KernelUse(name="f", registers=8)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The files that a compiler was asked for; none runs, for what is tested is what it is asked."""
    found: list[str] = []

    def compile_source(source: Path, arch: str) -> Library:
        found.append(f"{source.stem} {arch}")
        return Library(source, "", False)

    monkeypatch.setattr(compilation, "compile_source", compile_source)
    monkeypatch.setattr(compilation, "kernels_of", lambda library: [USE])
    monkeypatch.setattr(compilation, "find_nvcc", lambda: Path("/anywhere/nvcc"))
    monkeypatch.setattr(toolkit, "ROOT", tmp_path / "library")
    monkeypatch.delenv("NVCC", raising=False)
    return found


def sweep(root: Path, *archs: str) -> list[Compiled]:
    return compile_pairs(find_pairs(root), archs or ("sm_90a",))


def told(root: Path, *archs: str) -> list[tuple[str, str, str | None]]:
    return [(one.arch, one.status, one.reason) for one in sweep(root, *archs)]


@pytest.mark.parametrize(
    ("head", "requires", "reason"),
    [
        ("// targets: sm_90a", "", "// targets: says ['sm_90a'], but baseline_x.py needs(targets=[])"),
        (
            "",
            "requires = needs(targets=['sm_90a'])",
            "// targets: says [], but baseline_x.py needs(targets=['sm_90a'])",
        ),
        ("// targets: hopper", "", "// targets: names 'hopper'; known: sm_80, "),
    ],
)
def test_a_file_and_its_needs_that_disagree_are_a_failure(
    head: str, requires: str, reason: str, tmp_path: Path, asked: list[str]
) -> None:
    written(tmp_path / "ch01", {"baseline_x.py": CUDA + requires, "baseline_x.cu": f"// It copies.\n{head}\n"})
    ((_, status, found),) = told(tmp_path)
    assert status == "failed"
    assert (found or "").startswith(reason)
    assert asked == []


@pytest.mark.parametrize(
    ("requires", "reason"),
    [
        ("sm=100", "needs sm_100 or later"),
        ("headers=['no_such_header.h']", "needs the header no_such_header.h"),
        ("memory_gib=1e6, cores=1000000, gpus=99", None),  # only to run it
    ],
)
def test_what_compiling_needs_and_lacks_is_a_reasoned_skip(
    requires: str, reason: str | None, tmp_path: Path, asked: list[str]
) -> None:
    written(
        tmp_path / "ch01",
        {"baseline_x.py": f"{CUDA}requires = needs({requires})\n", "baseline_x.cu": "// It copies.\n"},
    )
    assert told(tmp_path) == [("sm_90a", "skipped" if reason else "compiled", reason)]


def test_without_a_compiler_every_file_is_skipped_and_none_passes(
    tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilation, "find_nvcc", lambda: None)
    monkeypatch.setattr(requirements, "_importable", lambda module: module != "triton")
    written(tmp_path / "ch01", {"baseline_x.py": CUDA, "baseline_x.cu": "// A.\n", "optimized_x.py": TRITON})
    assert told(tmp_path) == [
        ("sm_90a", "skipped", "needs nvcc"),
        ("sm_90a", "skipped", "needs the module triton"),
    ]
    assert asked == []


def test_a_compiler_that_was_named_and_does_not_exist_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVCC", str(tmp_path / "missing"))
    written(tmp_path / "ch01", {"baseline_x.py": CUDA, "baseline_x.cu": "// It copies.\n"})
    ((_, status, reason),) = told(tmp_path)
    assert status == "failed"
    assert "missing, which is no program" in (reason or "")


def test_a_file_that_is_missing_or_wrong_is_a_failure_and_not_a_skip(tmp_path: Path, asked: list[str]) -> None:
    written(
        tmp_path / "ch01", {"baseline_x.py": CUDA, "optimized_x.py": "import triton\n", "peer_x__y.py": TRITON + "f(\n"}
    )
    found = sweep(tmp_path)
    assert [(one.source, one.status) for one in found] == [
        ("ch01/baseline_x.cu", "failed"),
        ("ch01/optimized_x.py", "failed"),
        ("ch01/peer_x__y.py", "failed"),
    ]
    assert found[0].reason == "baseline_x.py loads it, but there is no ch01/baseline_x.cu"
    assert "docstring" in (found[1].reason or "")
    assert [one.line for one in found] == [None, 1, 4]


# The results of Triton that are kept.


def place(root: Path) -> Path:
    (pair,) = find_pairs(root)
    task = next(task for task in compilation.tasks_of(pair, ["sm_90a"]) if task.variant.role == "optimized")
    return compilation._place(task)


@pytest.fixture
def pair(tmp_path: Path, asked: list[str]) -> Path:
    written(
        tmp_path / "ch01",
        {
            "baseline_x.py": SENTENCE + "from common.python.workload import Workload\n",
            "optimized_x.py": TRITON + "from ch01.baseline_x import workload as workload\n",
            "peer_x__other.py": SENTENCE,
        },
    )
    return tmp_path


def test_a_kept_result_holds_while_its_files_its_settings_and_versions_are_the_same(
    pair: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [place(pair)]
    assert found[0].name.startswith("ch01-optimized_x-sm_90a-")
    (pair / "ch01" / "peer_x__other.py").write_text("another file")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert place(pair) == found[0]
    for name in ("optimized_x.py", "baseline_x.py"):
        with (pair / "ch01" / name).open("a") as file:
            file.write("\n")
        found.append(place(pair))
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "1")
    found.append(place(pair))
    monkeypatch.setattr("importlib.metadata.version", lambda name: "9.9")
    found.append(place(pair))
    assert len(set(found)) == 5


@pytest.mark.parametrize(
    ("error", "kept"),
    [("no CUDA driver", True), ("DefaultCPUAllocator: can't allocate memory", False)],
    ids=["for good", "for now"],
)
def test_that_a_pair_cannot_run_here_is_kept_but_not_that_its_memory_was_short(
    error: str, kept: bool, pair: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = pair / "ch01" / "optimized_x.py"
    file.write_text(file.read_text() + "requires = needs(gpus=1)\n")
    answer = {"status": "skipped", "reason": f"cannot be run without a GPU: {error}"}
    monkeypatch.setattr(compilation, "_compilers", nullcontext)
    worker = SimpleNamespace(call=lambda *words, **named: answer)
    monkeypatch.setattr(compilation, "one_worker", lambda root, log: nullcontext(worker))
    assert sweep(pair)[0].status == "skipped"
    assert place(pair).exists() == kept
