"""What user code writes, prints or patches in its worker does not become a result: see docs/threat_model.md."""

import contextlib
import json
import os
import time
from multiprocessing import Pipe

import pytest
from small_tree import HONEST, Hire, Tree, doing, late_s, prepare

from common.python.base.results import Block, Sample
from common.python.stats.timing_sanity import beyond_wall
from common.python.workers.channel import Channel, Forged
from common.python.workers.process import WorkerError

SOCKETS = """
import os, stat
sockets = [int(fd) for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")]
sockets = [fd for fd in sockets if stat.S_ISSOCK(os.fstat(fd).st_mode)]
"""
FAKE = '{"value": {"failures": {}, "out_of_memory": false, "prepare_s": {}, "first_call_s": {}}}'


@pytest.mark.parametrize(
    "sent",
    [FAKE + "\n", FAKE, "no JSON\n", "\x00\x00\x00\x05hello", '["value"]\n', "[" * 100_000 + "\n"],
    ids=["a whole answer", "without its end", "no JSON", "a frame", "no object", "deeply nested"],
)
def test_bytes_on_the_harnesss_connection_are_no_answer(hire: Hire, sent: str) -> None:
    trick = doing(f"{SOCKETS}\nfor fd in sockets: os.write(fd, {sent.encode()!r})")
    with pytest.raises(WorkerError) as caught:
        prepare(hire(trick))
    assert caught.value.who == "optimized_x"
    assert caught.value.reason == "something wrote to the harness's connection during its first step"


@pytest.mark.parametrize(
    ("does", "reason"),
    [
        ("os.write(fd, b'{')", "no answer within 1 s during its first step"),
        ("os.close(fd)", "the worker closed its connection to the harness during its first step"),
    ],
)
def test_half_an_answer_or_a_closed_connection_does_not_make_the_parent_wait(
    hire: Hire, does: str, reason: str
) -> None:
    trick = doing(f"{SOCKETS}\nfor fd in sockets: {does}\nwhile True: pass")
    started = time.monotonic()
    with pytest.raises(WorkerError) as caught:
        prepare(hire(trick), 1.0)
    assert caught.value.who == "optimized_x"
    assert caught.value.reason.startswith(reason)
    assert time.monotonic() - started < 4.0 + late_s()


def test_a_worker_holds_no_file_of_the_parent_but_its_own_log(tree: Tree, hire: Hire) -> None:
    """The journal, a result and a lock are open in the parent while the worker starts and works."""
    (tree.root / "artifacts").mkdir(parents=True)
    held = [(tree.root / "artifacts" / name).open("a") for name in ("journal.jsonl", "x.partial", "gpu.lock")]
    note = tree.root / "note"
    look = f"""
        import json, os
        opens = []
        for fd in os.listdir("/proc/self/fd"):
            if os.path.exists(f"/proc/self/fd/{{fd}}"):
                opens.append(os.readlink(f"/proc/self/fd/{{fd}}"))
        open({str(note)!r}, "w").write(json.dumps(opens))
        """
    worker = hire(doing(look))
    prepare(worker)
    watched = (str(tree.root / "artifacts"), str(worker.log))
    assert {name for name in json.loads(note.read_text()) if name.startswith(watched)} == {str(worker.log)}
    for file in held:
        file.close()


def test_a_second_answer_is_not_taken_for_that_to_the_next_question() -> None:
    ours, theirs = socket_pair()
    ours.ask("one", {})
    asked = json.loads(os.read(theirs._connection.fileno(), 1 << 16))
    assert (asked["command"], asked["arguments"]) == ("one", {})
    for value in (1, 2):
        os.write(theirs._connection.fileno(), json.dumps({"word": asked["word"], "value": value}).encode() + b"\n")
    assert ours.answer(1.0)["value"] == 1
    ours.ask("two", {})
    with pytest.raises(Forged):
        ours.answer(1.0)


def test_an_endless_answer_is_cut_off() -> None:
    ours, theirs = socket_pair()
    child = os.fork()
    if child == 0:
        ours.close()
        with contextlib.suppress(OSError):  # the parent had enough
            while True:
                os.write(theirs._connection.fileno(), b"x" * 65536)
        os._exit(0)
    theirs.close()
    ours.ask("one", {})
    with pytest.raises(Forged):
        ours.answer(60.0)
    ours.close()
    os.waitpid(child, 0)


def socket_pair() -> tuple[Channel, Channel]:
    ours, theirs = Pipe()
    return Channel(ours), Channel(theirs)


def block(us: float, steps: int = 1) -> Block:
    samples = [Sample(variant="v", device_us=us, wall_us=None, host_us=1.0) for _ in range(4)]
    walls = [Sample(variant="v", device_us=us, wall_us=2 * us, host_us=1.0)]
    return Block(round=0, steps=steps, samples=samples, walls=walls)


def test_samples_that_add_up_to_more_than_the_parent_waited_are_refused() -> None:
    assert beyond_wall(block(1e5), 0.61) is None
    assert beyond_wall(block(1e5), 0.6) is None
    reason = beyond_wall(block(1e5), 0.5)
    assert reason == "the worker told of 0.6 s of samples in a block that took 0.5 s by the parent's clock"
    assert beyond_wall(block(1e5, steps=10), 0.61) is not None
    assert beyond_wall(block(-1.0), 1.0) is not None
    assert beyond_wall(block(float("nan")), 1.0) is not None


SLOW_CLOCK = """
    import common.python.timing.sampler as sampling
    told = sampling._sample

    def slower(name, *how):
        sample = told(name, *how)
        return sample.model_copy(update={"wall_us": sample.wall_us + 1e6 * ("baseline" in name)})

    sampling._sample = slower
"""


def test_times_longer_than_the_run_itself_make_the_pair_invalid(tree: Tree) -> None:
    tree.pair("ch01:x", optimized=SLOW_CLOCK + HONEST)
    [result] = tree.run("ch1").pairs
    assert (result.status, result.verdict) == ("failed", "invalid")
    assert "by the parent's clock" in (result.reason or "")
    assert all(row.speedup is None for row in result.variants)


def test_a_file_planted_as_a_result_is_overwritten(tree: Tree) -> None:
    """User code can write where the user can: what is reported comes from the parent's memory, and is written last."""
    plant = doing(
        f"""
        from pathlib import Path
        for folder in Path({str(tree.artifacts)!r}).glob("*Z"):
            for name in ("ch01_x/results/benchmark_test_results.json", "summary.json"):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text("forged")
        """
    )
    tree.pair("ch01:x", optimized=plant)
    finished = tree.run("ch1")
    assert tree.result("ch01:x").model_copy(update={"blocks": []}) == finished.pairs[0]
    assert "forged" not in (tree.folder / "summary.json").read_text()
