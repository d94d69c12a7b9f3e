"""Each need that a machine lacks is a phrase with what was needed and what was found; one that it has is silence."""

import os
import sys
from pathlib import Path

import pytest
from synthetic_run import host, program, written

from common.python import requirements
from common.python.base.machine import Gpu, Machine
from common.python.report.listing import needs_text
from common.python.requirements import (
    Requirements,
    cuda_targets,
    gives_huge_pages,
    imported,
    needs,
    reads_directly,
    unmet,
)


def machine(gpus: int = 1, sm: int = 90) -> Machine:
    return host(*[Gpu(name="Testing 1000", uuid="GPU-1", sm=sm, memory_gib=23.6)] * gpus)


@pytest.mark.parametrize(
    ("required", "reason"),
    [
        (needs(gpus=2), "needs 2 GPUs, found 1"),
        (needs(sm=100), "needs sm_100 or later, found sm_90"),
        (needs(targets=["sm_100a", "sm_103a"]), "is for sm_100a, sm_103a, found sm_90"),
        (needs(memory_gib=40), "needs 40 GiB of GPU memory, found 24"),
        (needs(host_memory_gib=64.5), "needs 64.5 GiB of host memory, found 64"),
        (needs(cores=16), "needs 16 cores, found 8"),
        (needs(modules=["json", "no_such_module"]), "needs the module no_such_module"),
        (needs(modules=["json.no_such_part"]), "needs the module json.no_such_part"),
        (needs(modules=["bisect.json"]), "needs the module bisect.json"),
        (needs(tools=["no-such-tool"]), "needs no-such-tool on the PATH"),
        (needs(headers=["no_such_header.h"]), "needs the header no_such_header.h"),
    ],
)
def test_an_unmet_need_is_named_with_what_was_found(required: Requirements, reason: str) -> None:
    assert unmet(required, machine()) == [reason]


def test_without_a_gpu_only_the_lack_of_one_is_named_and_a_large_pair_runs_at_smaller_sizes() -> None:
    assert unmet(needs(sm=80, targets=["sm_90a"], memory_gib=60), machine(gpus=0)) == ["needs 1 GPU, found 0"]
    assert unmet(needs(memory_gib=60), machine(gpus=0)) == []


@pytest.mark.parametrize("target", ["sm_90", "sm_90a", "sm_90f"])
def test_a_target_is_met_by_its_compute_capability_with_any_suffix(target: str) -> None:
    assert unmet(needs(targets=["sm_75", target]), machine(sm=90)) == []
    assert unmet(needs(targets=["sm_75", target]), machine(sm=100)) != []


def test_a_misspelt_target_is_an_error_and_no_reason_to_skip() -> None:
    with pytest.raises(ValueError, match="'hopper' is not an architecture: write it as sm_90a"):
        unmet(needs(targets=["hopper"]), machine())


def test_modules_tools_and_headers_that_exist_are_met(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "a-tool", "#!/bin/sh\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert unmet(needs(modules=["json", "json.decoder"], tools=["a-tool"], headers=["kernel.cuh"]), machine()) == []


def test_looking_for_a_part_of_a_package_does_not_import_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"__init__.py": "raise RuntimeError", "part.py": "", "deep/part.py": ""}
    written(tmp_path / "a_package_to_find", files)
    monkeypatch.syspath_prepend(tmp_path)
    wanted = ["a_package_to_find.part", "a_package_to_find.deep.part", "a_package_to_find.json"]
    assert unmet(needs(modules=wanted), machine()) == ["needs the module a_package_to_find.json"]
    assert "a_package_to_find" not in sys.modules


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("// It multiplies.\n// targets: sm_90a (wgmma)\n", (("sm_90a",), "wgmma")),
        ("//targets:sm_100a,  sm_103a ( tcgen05, TMEM )  \n", (("sm_100a", "sm_103a"), "tcgen05, TMEM")),
        ("// For all targets: see below.\nint targets;\n", ((), "")),
        ("// \xb5 \n" + "\n" * 11 + "// targets: sm_90a\n", ((), "")),
    ],
)
def test_a_cuda_file_says_in_its_first_lines_what_it_is_for(
    text: str, targets: tuple[tuple[str, ...], str], tmp_path: Path
) -> None:
    (tmp_path / "x.cu").write_bytes(text.encode("latin-1"))
    assert cuda_targets(tmp_path / "x.cu") == targets


def test_huge_pages_are_given_where_the_kernel_says_always_or_on_request(tmp_path: Path) -> None:
    told = tmp_path / "enabled"
    assert not gives_huge_pages(told), "a kernel without them has no such file"
    for mode in ("always madvise [never]", "always [madvise] never", "[always] madvise never"):
        told.write_text(f"{mode}\n")
        assert gives_huge_pages(told) == ("[never]" not in mode)


def test_a_scratch_folder_in_memory_and_a_kernel_without_huge_pages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "reads_directly", lambda folder: False)
    monkeypatch.setattr(requirements, "gives_huge_pages", lambda: False)
    assert unmet(needs(), machine()) == []
    assert needs_text(needs(direct_io=True, huge_pages=True)) == "O_DIRECT, huge pages"
    [reason] = unmet(needs(direct_io=True), machine())
    assert reason.startswith("needs a scratch folder on a disk that takes O_DIRECT, /")
    [reason] = unmet(needs(huge_pages=True), machine())
    assert reason.startswith("needs huge pages on request, /sys/kernel/mm/transparent_hugepage/enabled does not")


@pytest.mark.parametrize(("kind", "reads"), [("ext2/ext3", True), ("tmpfs", False)])
def test_memory_that_takes_the_flag_is_no_disk(
    kind: str, reads: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, flags, *rest, **how: real(path, flags & ~os.O_DIRECT, *rest, **how))
    program(tmp_path / "stat", f"#!/bin/sh\necho {kind}\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert reads_directly(tmp_path) == reads


def test_a_module_is_imported_without_what_it_only_looks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_to_import.py").write_text("import sys\nsys.slow = True")
    lines = ["try:", "    import slow_to_import", "    found = True", "except ImportError:", "    found = False"]
    for name in ("asks", "asks_again"):
        (tmp_path / f"{name}.py").write_text("\n".join(lines))
    (tmp_path / "breaks.py").write_text("import slow_to_import")
    monkeypatch.syspath_prepend(tmp_path)
    assert not imported("asks", without="slow_to_import").found
    with pytest.raises(ImportError):
        imported("breaks", without="slow_to_import")
    assert "slow_to_import" not in sys.modules, "whoever does need it still finds it"
    import slow_to_import  # type: ignore[import-not-found]

    assert imported("asks_again", without="slow_to_import").found
    assert sys.modules["slow_to_import"] is slow_to_import, "it was there already, and stays"
    for name in ("asks", "asks_again", "slow_to_import"):
        del sys.modules[name]
