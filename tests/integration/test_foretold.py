"""What a worker in reserve answers ahead is what its pair would have heard: the same questions, the same faults."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from small_tree import HONEST, WRONG, Tree, doing

from common.python import foretold
from common.python.channel import Channel
from common.python.discovery import Pair
from common.python.preparation import VariantError
from common.python.results import PairResult
from common.python.roster import Roster
from common.python.settings import Settings

FIRST = ["load", "prepare", "prove", "dtypes", "teeth", "prepare", "prove"]
ONCE = """
    from pathlib import Path

    flag = Path({flag!r})

    def prepare(a):
        factor = 2 if flag.exists() else 2.01
        flag.touch()
        return lambda: a * factor
"""
FULL_ONCE = """
    from pathlib import Path

    def prepare(a):
        if not Path({flag!r}).exists():
            Path({flag!r}).touch()
            raise torch.OutOfMemoryError("no room beside another process")
        return lambda: a * 2
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """Each command that a worker is asked, and whether it had been answered before."""
    seen: list[tuple[str, bool]] = []
    ask = Channel.ask

    def note(channel: Channel, command: str, arguments: dict[str, Any]) -> None:
        ask(channel, command, arguments)
        seen.append((command, channel._known is not None))

    monkeypatch.setattr(Channel, "ask", note)
    return seen


def second(tree: Tree, **options: Any) -> PairResult:
    """The result of the pair whose worker was in reserve."""
    tree.run("ch1", **options)
    return tree.result("ch01:b")


def test_all_that_a_session_asks_before_the_timed_size_is_answered_ahead(
    tree: Tree, asked: list[tuple[str, bool]]
) -> None:
    tree.pair("ch01:a")
    tree.pair("ch01:b")
    result = second(tree)
    assert [command for command, known in asked if known] == FIRST
    before = {(proof.size, proof.when) for variant in result.variants for proof in variant.proofs}
    assert ("test", "before timing") in before
    assert (result.status, "start" in result.seconds) == ("measured", True)


def test_what_a_note_stands_for_is_not_proven_ahead(
    tree: Tree, asked: list[tuple[str, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts: list[dict[str, Any]] = []
    scripts_of = Settings._scripts

    def note(settings: Settings, pair: Pair, roster: Roster) -> list[dict[str, Any]]:
        scripts.extend(scripts_of(settings, pair, roster))
        return scripts[-1:]

    monkeypatch.setattr(Settings, "_scripts", note)
    tree.pair("ch01:a")
    tree.pair("ch01:b")
    second(tree)
    asked.clear()
    second(tree, quick=True)
    assert [command for command, known in asked if known] == ["load"]
    assert scripts[-1]["sizes"] == []


def test_each_worker_of_an_isolated_pair_has_loaded_its_own(tree: Tree, asked: list[tuple[str, bool]]) -> None:
    tree.pair("ch01:a")
    tree.pair("ch01:b", fields="isolated=True,")
    assert second(tree).status == "measured"
    assert [command for command, known in asked if known] == ["load"] * 3


FAULTS = {
    "wrong": {"optimized": WRONG},
    "the baseline is wrong": {"baseline": WRONG},
    "import": {"optimized": "\n1 / 0\n" + HONEST},
    "the baseline's import": {"baseline": "\n1 / 0\n" + HONEST},
    "prepare": {"optimized": "\n    def prepare(a):\n        raise ValueError('no')\n"},
    "step": {"optimized": "\n    def prepare(a):\n        return lambda: 1 / 0\n"},
    "inputs": {"inputs": "1 / 0"},
    "reference": {"reference": "lambda a: 1 / 0"},
    "teeth": {"tolerance": "1e6"},
    "a clock": {"optimized": doing("import time; time.perf_counter = lambda: 0.0")},
    "exits": {"optimized": doing("import os; os._exit(5)")},
    "leaves": {"optimized": doing("raise SystemExit")},
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_is_told_as_it_is_where_nothing_is_answered_ahead(tree: Tree, fault: dict[str, str]) -> None:
    tree.pair("ch01:b", **{"optimized": HONEST, **fault})
    tree.run("ch1")
    alone = faults(tree.result("ch01:b"))
    tree.pair("ch01:a")
    assert faults(second(tree)) == alone
    assert any(told for _, told in alone)


def faults(result: PairResult) -> list[tuple[Any, ...]]:
    """What is said of the pair and of each variant, and of each proof that failed."""
    rows = [(row.status, row.reason, row.verdict) for row in result.variants]
    wrong = [proof.reason for row in result.variants for proof in row.proofs if proof.reason]
    return [(result.verdict, result.reason), *((row[:1] + row[2:], row[1]) for row in rows), (tuple(wrong), None)]


def test_a_proof_that_fails_once_has_failed(tree: Tree, tmp_path: Path) -> None:
    tree.pair("ch01:a")
    tree.pair("ch01:b", optimized=ONCE.format(flag=str(tmp_path / "flag")))
    result = second(tree)
    assert result.status == "failed"
    assert "wrong at test size, before timing" in (result.reason or "")


def test_a_step_that_hangs_in_reserve_is_told_of_when_the_time_of_its_pair_is_up(tree: Tree) -> None:
    tree.pair("ch01:a")
    tree.pair("ch01:b", optimized=doing("import time; time.sleep(600)"))
    result = second(tree, timeout_multiplier=0.03)
    assert result.status == "failed"
    told = r"optimized_b: no answer within [34] s during prepare at optimized_b\.py:\d+; its stack is in the log"
    assert re.fullmatch(told, result.reason or ""), result.reason


def test_memory_that_was_short_beside_another_pair_is_asked_for_again(tree: Tree, tmp_path: Path) -> None:
    tree.pair("ch01:a")
    tree.pair("ch01:b", optimized=FULL_ONCE.format(flag=str(tmp_path / "flag")))
    result = second(tree)
    assert result.status == "measured"
    assert not any("memory" in note for note in result.notes)


def test_the_answers_end_where_something_else_is_asked() -> None:
    sent: list[str] = []

    class Silent(Channel):
        def __init__(self) -> None:
            self._pending, self._word, self._foretold, self._known = bytearray(), "", [], None

        def _send(self, message: dict[str, Any]) -> None:
            sent.append(message["command"])

    channel = Silent()
    channel.foretell([{"command": name, "arguments": {}, "answer": {"value": name}} for name in ("a", "b", "c")])
    channel.ask("a", {})
    assert (channel.answer(0.0), sent) == ({"value": "a"}, [])
    channel.ask("b", {"size": "cpu"})
    assert sent == ["b"]
    channel.ask("c", {})
    assert sent == ["b", "c"], "what was answered ahead is of another state"


LOADED = {"load": {"failures": {}}}
READY = {"prepare": {"failures": {}, "out_of_memory": False}}
PROVEN = {"prove": {"b": [{"reason": None}]}, "dtypes": ["float32"], "teeth": []}
FOUND: dict[str, tuple[dict[str, Any], list[str]]] = {
    "all is well": ({}, FIRST),
    "one does not load": ({"load": {"failures": {"o": "no"}}}, FIRST[:1]),
    "one is not prepared": ({"prepare": {"failures": {"b": "no"}, "out_of_memory": False}}, FIRST[:2]),
    "a proof fails": ({"prove": {"b": [{"reason": None}, {"reason": "wrong"}]}}, FIRST[:3]),
    "the tolerance accepts zeros": ({"teeth": ["zeros"]}, FIRST[:5]),
    "inputs raise": ({"prepare": VariantError("workload", ValueError("no"))}, FIRST[:2]),
    "an error": ({"prove": VariantError("b", ValueError("no"))}, FIRST[:3]),
    "no memory to prepare": ({"prepare": {"failures": {"b": "no"}, "out_of_memory": True}}, FIRST[:1]),
    "no memory for the reference": ({"prove": VariantError("workload", torch.OutOfMemoryError("no"))}, FIRST[:2]),
}


@pytest.mark.parametrize(("found", "told"), FOUND.values(), ids=FOUND)
def test_what_is_found_is_told_and_what_follows_a_fault_is_left_to_the_session(
    found: dict[str, Any], told: list[str]
) -> None:
    """But for memory, which a predecessor may have had: that is asked again."""

    def perform(command: str, arguments: dict[str, Any]) -> Any:
        answer = (LOADED | READY | PROVEN | found)[command]
        if isinstance(answer, Exception):
            raise answer
        return answer

    answered = foretold.foretell(perform, load={"modules": {}}, names=["b", "o"], sizes=["test"], trials=3)
    assert [one["command"] for one in answered] == told
    if isinstance(error := found.get("prove"), VariantError) and not error.out_of_memory:
        assert answered[-1]["answer"] == {"error": "ValueError: no", "who": "b", "out_of_memory": False}
    shares = [one["arguments"]["names"] for one in answered if one["command"] == "prepare"]
    assert shares == [["b"], ["o"]][: len(shares)]


def test_a_worker_in_reserve_rehearses_on_a_gpu_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(foretold, "rehearse", lambda device, scratch: done.append("rehearsal"))

    def ready(device: str) -> list[str]:
        done.clear()
        at = lambda who, what: done.append(what)  # noqa: E731
        assert foretold.get_ready(torch.device(device), tmp_path, at, lambda command, arguments: None) == []
        return list(done)

    assert ready("cuda") == ["rehearsal", "rehearsal", "reserve"]
    assert ready("cpu") == ["reserve"]


def test_inputs_that_fail_once_have_failed(tree: Tree, tmp_path: Path) -> None:
    tree.pair("ch01:a")
    flag = f"__import__('pathlib').Path({str(tmp_path / 'flag')!r})"
    once = f'{{"a": draw.normal(n)}} if {flag}.exists() else 1 / {flag}.touch()'
    tree.pair("ch01:b", inputs=once)
    result = second(tree)
    assert result.status == "failed"
    assert "TypeError" in (result.reason or "")
