"""`benchmark_cli estimate` as a user meets it: numbers, plain words, the source of the peaks, one line for an error."""

import json
from pathlib import Path

import pytest
from small_tree import assert_usage, cli
from synthetic_run import host, peak, survey

from common.python.base.machine import GIB, Gpu
from common.python.peaks import store as peak_store

H200 = ["--gpu", "H200"]


def run(*words: str) -> str:
    done = cli("estimate", *words)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def shown(*words: str) -> str:
    """The table, each run of blanks and borders as one blank."""
    return " ".join(run(*words).replace("│", " ").split())


def found(*words: str) -> dict:
    return json.loads(run(*words, "--json"))


def test_the_table_says_in_plain_words_what_bounds_what() -> None:
    text = shown("llama-3.1-8b", *H200, "--measured-ms", "4.4")
    assert "llama-3.1-8b: bf16 weights, bf16 cache, bf16 arithmetic; 1 sequence of 4096 tokens on 1 GPU (H200)" in text
    assert "weights 16 GB 8.03 billion parameters; a step reads 15 GB of them" in text
    assert "KV cache 131 kB a token 537 MB for 1 sequence" in text
    assert "fits yes, on 1 GPU weights and cache take 17 GB of the 127 GB on each GPU" in text
    assert "decode, at least 3.24 ms a token bound by memory at 4.8 TB/s; arithmetic would take 17.3 us" in text
    assert "prefill, at least 62.2 ms bound by arithmetic at 989 TFLOP/s; memory would take 3.24 ms" in text
    assert "ridge batch none at this context a sequence's cache takes longer to read than its FLOPs to do" in text
    assert "measured decode 4.40 ms 73.6% of the speed that its floor of 3.24 ms allows; 227 tokens/s" in text
    assert "model FLOPs utilisation 0.39%" in text
    assert "Peaks: datasheet of H200. Model: https://huggingface.co/meta-llama/Llama-3.1-8B" in text
    assert "no real step is as fast" in text
    assert "FASTER" not in text


def test_a_gpu_is_found_by_its_name_in_the_table_and_by_what_a_driver_calls_it() -> None:
    for word in ("H100 SXM", "h100 sxm", "h100", "NVIDIA H100 80GB HBM3"):
        assert found("8B", "--gpu", word)["board"]["name"] == "H100 SXM"


def test_a_step_faster_than_its_floor_is_doubted_loudly_beyond_what_peaks_wander() -> None:
    assert "FASTER THAN PHYSICS ALLOWS" in shown("llama-3.1-8b", *H200, "--measured-ms", "3.0")
    assert "FASTER" not in shown("llama-3.1-8b", *H200, "--measured-ms", "3.2")  # 101%


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["llama-3.1-9b", *H200], "did you mean llama-3.1-8b?"),
        (["gpt", *H200], "'gpt' is not a published shape or a number of parameters, such as 8B; there are stories15m"),
        (["8B", "--gpu", "H2OO"], "--gpu 'H2OO' is not in the table of datasheets; did you mean H200?"),
        (["8B", "--gpu", "a10"], "--gpu 'a10' is not in the table of datasheets; did you mean A100 SXM 40GB?"),
        (["8B", "--gpu", "x" * 5000], f"--gpu '{'x' * 100}...' is not in the table"),
        (["8B", *H200, "--weights", "bf17"], "'--weights': 'bf17' is not one of 'fp32', 'bf16', "),
        (["8B", *H200, "--math", "bf17"], "no bf17 rate of H200 is known (datasheet of H200): choose with --math"),
        (["8B", *H200, "--layers", "3"], "--layers and --vocab need a published shape"),
        (["qwen2.5-7b", *H200, "--gpus", "3"], "--gpus 3 cannot split the heads of qwen2.5-7b evenly: 1, 2, 4, 28 can"),
        (["8B", *H200, "--measured-ms", "1", "--measured-tokens-per-s", "1"], "give one of --measured-ms and"),
        (["8B", *H200, "--measured-ms", "1", "--phase", "decoding"], "is not one of 'decode', 'prefill', 'train'"),
        (["8B", *H200, "--phase", "train"], "--phase goes with it"),
        (["8B", *H200, "--measured-ms", "nan"], "nan is no number"),
        (["8B", *H200, "--weights-bytes", "0"], "1e-09<=x<=1e+30"),
    ],
)
def test_wrong_input_is_one_line_that_says_what_would_be_right(words: list[str], told: str) -> None:
    assert_usage(cli("estimate", *words), told)


# This machine's own GPU. There is none where the tests run, so NVML's answer is made up.


def here(monkeypatch: pytest.MonkeyPatch, *gpus: str) -> None:
    made = [Gpu(name=name, uuid="GPU-ab-12", sm=90, memory_gib=140.0) for name in gpus]
    monkeypatch.setattr("tools.cli.estimating.machine", lambda: host(*made))


def keep(folder: Path, driver: str = "580.1", **values: float) -> Path:
    peaks = [peak(name, v, "B/s" if name.startswith("hbm") else "FLOP/s") for name, v in values.items()]
    path = peak_store.path_of(folder, "ab-12")
    peak_store.save(path, survey(*peaks, uuid="ab-12", versions=peak_store.versions(driver, "13.0")))
    return path


def test_this_gpu_is_estimated_by_the_peaks_that_were_measured_on_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here(monkeypatch, "NVIDIA H200", "NVIDIA L4")
    keep(tmp_path, hbm_copy=4e12, hbm_read=4.25e12, bf16=781e12)
    board = found("llama-3.1-8b", "--artifacts-dir", str(tmp_path))["board"]
    assert board == {
        "name": "NVIDIA H200",
        "memory_bytes": 140 * GIB,
        "bandwidth": 4.25e12,
        "rates": {"bf16": 781e12},
        "source": "measured on 2026-01-01 on this machine",
    }
    refused = cli("estimate", "llama-3.1-8b", "--artifacts-dir", tmp_path, "--weights", "fp8")
    assert_usage(refused, "no fp8 rate of NVIDIA H200 is known (measured on 2026-01-01 on this machine)")


def test_peaks_of_other_versions_give_way_to_the_datasheet_and_the_table_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here(monkeypatch, "NVIDIA H200")
    path = peak_store.path_of(tmp_path, "ab-12")
    assert f"datasheet of H200, since there are no peaks in {path}" in shown("8B", "--artifacts-dir", str(tmp_path))
    keep(tmp_path, driver="570.0", hbm_read=4.25e12, bf16=781e12)
    board = found("8B", "--artifacts-dir", str(tmp_path))["board"]
    assert board["bandwidth"] == 4.8e12
    assert board["source"].startswith("datasheet of H200, since the stored peaks were measured with driver 570.0")


def test_a_gpu_of_which_nothing_is_known_and_a_machine_without_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ("estimate", "8B", "--artifacts-dir", tmp_path)
    here(monkeypatch)
    assert_usage(cli(*words), "this machine has no GPU: name one of the table, such as --gpu H200")
    here(monkeypatch, "NVIDIA H200 NVL")
    assert_usage(cli(*words), "NVIDIA H200 NVL has no datasheet here: measure it with `benchmark_cli peak`")
    keep(tmp_path, bf16=781e12)
    assert_usage(cli(*words), "has no memory bandwidth")
    keep(tmp_path, bf16=781e12).write_text("not JSON")
    assert_usage(cli(*words), "is damaged or foreign")
