"""What is read from the reports of ncu and nsys, and what is asked of those tools."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from common.python.profile import nsight
from common.python.profile.nsight import (
    ReportError,
    base_name,
    complaint,
    lacking,
    launches,
    speed_of_light,
    timeline_kernels,
)

# Not recorded, but written from public uses of ncu: `--page raw --csv --print-units base`
# prints a line of metrics, a line of their units and a line for each launch, every cell in quotation marks.
COLUMNS = ("ID", "Process ID", "Kernel Name", *nsight.UNITS)
UNITS = ("", "", "", "ns", "byte", "byte", "%", "%", "%")
FIRST = ("0", "71", "void tile<1>(const float *, float *)", "3,000", "2,000,000", "500", "90.5", "20", "80")
SECOND = ("1", "71", "copy", "1,000", "0", "1,500", "50.5", "60", "40")


def table(*lines: tuple[str, ...], units: tuple[str, ...] = UNITS) -> str:
    quoted = (",".join(f'"{cell}"' for cell in line) for line in (COLUMNS, units, *lines))
    return "==PROF== Connected to process 71\n" + "\n".join(quoted) + "\n"


def timeline(path: Path, *kernels: str) -> Path:
    """As `nsys export --type sqlite` is said to make it, not recorded: names are numbers in the table of strings."""
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        for number, kernel in enumerate(kernels):
            if number == 0:
                base.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (demangledName INTEGER, shortName INTEGER)")
            base.execute("INSERT INTO StringIds VALUES (?, ?)", (number, kernel))
            base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, 0)", (number,))
    return path


def test_percentages_are_weighted_by_time_and_the_rest_is_added_up() -> None:
    found = speed_of_light(launches(table(FIRST, SECOND)))
    assert found.dram_percent == pytest.approx((90.5 * 3 + 50.5) / 4)
    assert found.sm_percent == pytest.approx((20 * 3 + 60) / 4)
    assert found.occupancy_percent == pytest.approx((80 * 3 + 40) / 4)
    assert (found.kernel_us, found.read_bytes, found.written_bytes, found.kernels) == (4.0, 2e6, 2000.0, 2)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "holds no kernel"),
        ("==WARNING== No kernels were profiled.\n", "holds no kernel"),
        (table(), "holds no kernel"),
        (table(FIRST, units=(*UNITS[:3], "us", *UNITS[4:])), "gpu__time_duration.sum is in us, and should be in ns"),
        (table(FIRST, units=(*UNITS[:4], "Mbyte", *UNITS[5:])), "dram__bytes_read.sum is in Mbyte"),
        (table(FIRST).replace("sm__throughput", "gone"), "sm__throughput.avg.pct_of_peak_sustained_elapsed is missing"),
        (table((*FIRST[:6], "n/a", *FIRST[7:])), "of tile is 'n/a', no number"),
        (table((*FIRST[:3], "0", *FIRST[4:])), "took no time"),
    ],
)
def test_a_table_that_gives_no_figures_says_why(text: str, reason: str) -> None:
    with pytest.raises(ReportError, match=reason):
        speed_of_light(launches(text))


@pytest.mark.parametrize(
    ("kernel", "base"),
    [
        ("void transpose<1>(float const*, float*, long, long)", "transpose"),
        (
            "void at::native::vectorized_elementwise_kernel<4, F<float>, A<char*, 2> >(int)",
            "vectorized_elementwise_kernel",
        ),
        ("void at::native::(anonymous namespace)::softmax<(int)4, float>(float *)", "softmax"),
        ("void at::native::<unnamed>::softmax<4, float>(float *)", "softmax"),
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, float>(P<float>)", "kernel"),
        ("sm90_xmma_gemm_f32f32_execute_kernel__5x_cublas", "sm90_xmma_gemm_f32f32_execute_kernel__5x_cublas"),
        ("triton_red_fused_0", "triton_red_fused_0"),
        ("void f<g<int, 4>, h<char", "f"),  # cut
    ],
)
def test_tools_agree_on_a_kernels_base_name(kernel: str, base: str) -> None:
    assert base_name(kernel) == base


def test_what_lacks_is_named_and_copies_are_no_kernels() -> None:
    top = ["void a::tile<1>(float const*)", "Memcpy DtoD (Device -> Device)", "Memset (Device)", "copy"]
    assert lacking(top, ["tile", "void copy<2>(int)"]) == []
    assert lacking(top, ["copy", "tiled"]) == ["tile"]
    assert lacking(top, []) == ["tile", "copy"]
    long = "triton_poi_" + "x" * 200
    assert lacking([long[:120]], [long]) == []
    assert lacking([long[:119]], [long]) == [long[:119]]  # it is a whole name


def test_a_timeline_gives_its_kernels_and_none_where_only_copies_ran(tmp_path: Path) -> None:
    assert timeline_kernels(timeline(tmp_path / "a.sqlite", "void tile<1>()", "copy")) == ["void tile<1>()", "copy"]
    assert timeline_kernels(timeline(tmp_path / "b.sqlite")) == []
    (tmp_path / "c.sqlite").write_text("no database, whatever its name says")
    for name in ("c", "absent"):
        with pytest.raises(ReportError, match="cannot be read"):
            timeline_kernels(tmp_path / f"{name}.sqlite")


@pytest.mark.parametrize(
    ("printed", "code", "reason"),
    [
        ("==PROF== Disconnected\n", 0, None),
        ("==WARNING== No kernels were profiled.\n", 0, "no kernel in the marked step"),
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n", 1, "benchmark_cli doctor"),
        ("==ERROR== Unknown section\n", 1, "exit code 1: Unknown section"),
        ("x: prepare\nRuntimeError: no\n\n==PROF== Disconnected\n", 1, "exit code 1: RuntimeError: no"),
        ("==ERROR== Failed to profile \x1b[1m\n", 0, "Failed to profile"),
        ("", 3, "exit code 3"),
    ],
)
def test_what_a_tool_complains_of_is_one_line(printed: str, code: int, reason: str | None) -> None:
    found = complaint(printed, code)
    assert found is None if reason is None else reason in (found or "")
    assert found is None or found.isprintable()


def test_ncu_watches_the_marked_step_alone_and_leaves_clocks_be() -> None:
    words = nsight.ncu_command(Path("/bin/ncu"), "baseline_x", Path("/p/baseline_x.ncu-rep"), ["python", "-m", "step"])
    assert words[0] == "/bin/ncu"
    assert words[-3:] == ["python", "-m", "step"]
    for option, value in {
        "--export": "/p/baseline_x",
        "--nvtx-include": "step of baseline_x/",  # of a push/pop range
        "--nvtx-push-pop-scope": "process",
        "--target-processes": "application-only",
        "--clock-control": "none",
        "--graph-profiling": "node",
        "--launch-count": "100",
        "--metrics": ",".join(nsight.UNITS),
    }.items():
        assert words[words.index(option) + 1] == value
    assert "--nvtx" in words


def test_nsys_records_the_marked_step_alone_and_lets_its_process_end() -> None:
    words = nsight.nsys_command(Path("/bin/nsys"), "baseline_x", Path("/p/baseline_x.nsys-rep"), ["python", "step"])
    assert words[:4] == ["/bin/nsys", "profile", "--output", "/p/baseline_x"]
    assert words[-2:] == ["python", "step"]
    assert {"--capture-range=nvtx", "--nvtx-capture=step of baseline_x", "--kill=none"} <= set(words)
