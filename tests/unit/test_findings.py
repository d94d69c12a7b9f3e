from pathlib import Path

import pytest
from pynvml import NVML_ERROR_NO_PERMISSION, NVMLError

from common.python.base.machine import cpu_list
from common.python.doctor.check_result import Answer, Check, Finding, examine, text


def raising(error: Exception) -> Check:
    def ask(subject: str) -> Answer:
        raise error

    return Check("fan", "heat slows", ask)


def test_an_answer_becomes_a_finding_with_its_place_and_its_reason() -> None:
    check = Check("fan", "heat slows", lambda subject: Answer("poor", f"{subject} stands", "turn it"))
    assert examine("GPU 0", [check], "it") == [Finding("GPU 0", "fan", "poor", "it stands", "heat slows", "turn it")]


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (PermissionError(13, "Permission denied", "/sys/fan"), "/sys/fan: Permission denied"),
        (ValueError("not a number"), "not a number"),
        (NVMLError(NVML_ERROR_NO_PERMISSION), "Insufficient Permissions"),
    ],
)
def test_what_cannot_be_read_is_unknown_with_the_reason_and_the_rest_is_asked(error: Exception, why: str) -> None:
    after = Check("after", "", lambda subject: Answer("good", "asked"))
    first, second = examine("host", [raising(error), after], "it")
    assert (first.state, first.found, first.matters, first.change) == ("unknown", why, "heat slows", None)
    assert second.found == "asked"


@pytest.mark.parametrize(
    ("written", "cpus"),
    [("0-3,8", {0, 1, 2, 3, 8}), ("5", {5}), ("", set()), ("0-1,32-33\n", {0, 1, 32, 33})],
)
def test_a_list_of_cpus(written: str, cpus: set[int]) -> None:
    assert cpu_list(written) == cpus


def test_a_file_that_is_no_utf_8_is_read_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "name").write_bytes(b" GPU \xff\n")
    assert text(tmp_path / "name") == "GPU �"
