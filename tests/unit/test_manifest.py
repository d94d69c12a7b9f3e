import hashlib
import os
import sys
from pathlib import Path

import pytest
from fake_nvml import UUIDS, FakeNvml, refuse
from synthetic_run import git, program, written

from common.python.base import manifest
from common.python.base.machine import host_memory, machine, usable_cores, visible
from common.python.base.manifest import collect, git_state, relevant_environment, sources_of, topology
from common.python.base.results import Manifest


def test_a_gpu_is_described_by_nvml(nvml: FakeNvml) -> None:
    found = machine()
    assert [gpu.uuid for gpu in found.gpus] == UUIDS
    gpu = found.gpus[2]
    assert (gpu.name, gpu.sm, gpu.memory_gib, gpu.power_limit_w) == ("NVIDIA H200", 121, 141.0, 700.0)
    assert (gpu.max_sm_mhz, gpu.max_memory_mhz) == (1980, 3201)
    assert (found.driver, found.cuda_driver) == ("580.95.05", "13.1")


def test_there_are_no_gpus_without_a_driver(nvml: FakeNvml) -> None:
    nvml.nvmlInit = refuse
    found = machine()
    assert (found.gpus, found.driver, found.cuda_driver) == ([], None, None)


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        (None, UUIDS),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("1", ["GPU-aa22"]),
        ("2, 0", ["GPU-bb33", "GPU-aa11"]),
        ("0,9,1", ["GPU-aa11"]),  # the first entry that is no GPU ends the list
        ("0,-1,1", ["GPU-aa11"]),
        ("GPU-bb33", ["GPU-bb33"]),
        ("GPU-b,0", ["GPU-bb33", "GPU-aa11"]),
        ("GPU-aa", []),  # the start of two
        ("bb33", []),
        ("0,0", []),
    ],
)
def test_visible_devices_are_read_as_cuda_reads_them(setting: str | None, shown: list[str]) -> None:
    assert visible(UUIDS, setting) == shown


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 8),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000"}, 8),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "300000 100000"}, 3),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "50000 100000"}, 1),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "9900000 100000"}, 8),
        (
            {
                "proc/self/cgroup": "0::/user/job",
                "sys/fs/cgroup/user/job/cpu.max": "max 100000",
                "sys/fs/cgroup/user/cpu.max": "200000 100000",
            },
            2,
        ),
        (
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/job\n0::/",
                "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "400000",
                "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
            },
            4,
        ),
    ],
)
def test_cores_are_those_of_the_affinity_within_the_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert usable_cores(written(tmp_path, files)) == cores


@pytest.mark.parametrize(
    ("files", "kib"),
    [
        ({}, 1000),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "max"}, 1000),
        ({"proc/self/cgroup": "0::/a", "sys/fs/cgroup/memory.max": str(700 * 1024)}, 700),
        ({"proc/self/cgroup": "4:memory:/a", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": str(600 * 1024)}, 600),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": str(5000 * 1024)}, 1000),
    ],
)
def test_memory_is_what_is_there_within_the_limit(tmp_path: Path, files: dict[str, str], kib: int) -> None:
    root = written(tmp_path, {"proc/meminfo": "MemTotal:        1000 kB\nMemFree: 10 kB", **files})
    assert host_memory(root) == kib * 1024


def test_the_host_is_described_from_proc(tmp_path: Path, nvml: FakeNvml) -> None:
    cores = "processor : 0\nmodel name : A Fine CPU @ 3 GHz\nprocessor : 1\nmodel name : other"
    root = written(tmp_path, {"proc/meminfo": "MemTotal: 2097152 kB", "proc/cpuinfo": cores})
    found = machine(root)
    assert (found.cpu, found.memory_gib) == ("A Fine CPU @ 3 GHz", 2.0)


def test_only_variables_that_change_results_are_kept() -> None:
    kept = {"CUDA_VISIBLE_DEVICES": "", "TORCHINDUCTOR_X": "1", "PYTORCH_ALLOC_CONF": "a", "LD_PRELOAD": "x.so"}
    kept |= {"CUBLAS_WORKSPACE_CONFIG": ":8", "GLIBC_TUNABLES": "t", "MALLOC_ARENA_MAX": "1", "NCCL_ALGO": "Ring"}
    assert relevant_environment({**kept, "HOME": "/root", "API_TOKEN": "secret", "MY_CUDA_": "no"}) == kept


def test_a_manifest_tells_what_ran(tmp_path: Path, nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "nvcc_version", lambda: "13.0")
    monkeypatch.setattr(manifest, "topology", lambda: None)
    monkeypatch.setattr(manifest, "PACKAGES", ("pydantic", "no-such-package"))
    source = tmp_path / "baseline_x.py"
    source.write_text("x = 1\n")
    inside = Path(manifest.__file__)
    made = collect(["ch07"], {"size": "test", "warmup": None}, [source, inside], seed=3)
    assert made.sources[str(source)] == hashlib.sha256(b"x = 1\n").hexdigest()
    assert "common/python/base/manifest.py" in made.sources
    assert made.started.endswith("+00:00")
    assert made.versions["python"] == ".".join(map(str, sys.version_info[:3]))
    assert made.versions["nvcc"] == "13.0"
    assert made.versions["pydantic"] is not None
    assert made.versions["no-such-package"] is None
    assert (made.targets, made.options["warmup"], made.seed, len(made.machine.gpus)) == (["ch07"], None, 3, 3)
    assert Manifest.model_validate_json(made.model_dump_json()) == made


def test_git_tells_the_commit_and_whether_files_differ_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert git_state(tmp_path) == (None, None)
    git(tmp_path, "init")
    written(tmp_path, {"a": "1", "inner/b": "2"})
    assert git_state(tmp_path) == (None, True)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert git_state(tmp_path) == (head, False)
    assert git_state(tmp_path / "inner") == (None, None)  # somebody else's repository
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))  # as in a hook of another repository
    assert git_state(tmp_path) == (head, False)
    written(tmp_path, {"a": "changed"})
    assert git_state(tmp_path) == (head, True)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(tmp_path) == (None, None), "where there is no git"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a checkout away")
def test_the_commit_of_a_checkout_that_belongs_to_another_user(tmp_path: Path) -> None:
    git(tmp_path, "init")
    git(tmp_path, "commit", "--allow-empty", "-m", "first")
    head = git(tmp_path, "rev-parse", "HEAD")
    for path in (tmp_path, tmp_path / ".git"):
        os.chown(path, 1234, 1234)
    assert git_state(tmp_path) == (head, False)


def test_the_sources_of_pairs_are_their_files_with_kernels_beside_them_and_the_library(tmp_path: Path) -> None:
    files = [tmp_path / "baseline_x.py", tmp_path / "optimized_x.py"]
    kernel = tmp_path / "optimized_x.cu"
    kernel.touch()
    found = sources_of(files)
    assert found[:3] == [*files, kernel]
    assert {"suite.py", "results.py"} < {path.name for path in found[3:]}
    assert {path.suffix for path in found[3:]} == {".py", ".cuh"}


def test_how_gpus_reach_each_other_is_what_nvidia_smi_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    text = "#!/bin/sh\nprintf '\\t\\033[4mGPU0\\tGPU1\\033[0m\\nGPU0\\t X \\tNV18\\n'; test \"$*\" = 'topo -m'\n"
    smi = program(tmp_path / "nvidia-smi", text)
    assert topology() == "\tGPU0\tGPU1\nGPU0\t X \tNV18\n"
    smi.write_text("#!/bin/sh\nexit 1\n")
    assert topology() is None


def test_an_older_manifest_is_read(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "topology", lambda: None)
    older = collect(["ch07"], {}, [], seed=3).model_dump(mode="json")
    older["topology"] = {"gpus": [], "links": [["X", "NV18"], ["NV18", "X"]]}
    older["machine"]["numa_nodes"] = 2
    assert Manifest.model_validate(older).model_dump(mode="json") == older
