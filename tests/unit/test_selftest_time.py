"""What a selftest has when its time is up or its process is ended, and what its experiments share of their time."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from common.python.base.machine import Machine
from common.python.base.results import Manifest, PairResult, VariantResult
from common.python.run.prebuild import Ahead
from common.python.stats.sampling_plan import FEWEST_ROUNDS, fixed_plan
from common.python.workers.members import Crowded
from tools.selftest import cheats, experiments, rivals, sessions, suites
from tools.selftest.experiments import EXPERIMENTS, REPORT, Experiment, Selftest
from tools.selftest.forms import FULL, QUICK, Form
from tools.selftest.models import NAMES, Name, Others, Pass, Promise, Report, Session, Sessions
from tools.selftest.sessions import Bench
from tools.selftest.suites import Passes

HOST = Machine(hostname="h", system="s", cpu="c", cores=1, memory_gib=1.0, numa_nodes=1, gpus=[])
ONE = Session(pair="ch01:x", number=1, seconds=1.0, phases={})
ROW = {"name": "optimized_b", "role": "optimized", "label": "optimized", "file": "b.py", "sentence": "", "kinds": []}
PASS = Pass(budget_s=0.1, seconds=1.0, pairs=["ch01:a"], phases={}, speedups={})


def bench(folder: Path, aa: float = 1.0, truth: float = 1.0) -> Bench:
    form = replace(QUICK, seconds={**dict.fromkeys(NAMES, 0.0), "aa": aa, "truth": truth})
    return Bench(folder, folder, folder, HOST, "cpu", None, 1, form, lambda line: None)


def selftest(of: Bench, *chosen: Name) -> Selftest:
    about = Manifest(
        started="2026-01-02T03:04:05+00:00", command=[], options={}, targets=[], machine=HOST, versions={},
        git_commit="abc", git_dirty=False, sources={}, environment={}, seed=1,
    )  # fmt: skip
    report = Report(manifest=about, device="cpu", form="quick", seconds={}, promises=[])
    return Selftest(of, list(chosen), report, Passes())


def promised(found: Any, of: Bench) -> list[Promise]:
    told = f"{len(found.sessions)} sessions"
    return [Promise(experiment="aa", promise="p", measured=told, bound="b", standing="kept")]


def stand_in(monkeypatch: pytest.MonkeyPatch, name: Name, run: Callable[[Bench], Any]) -> None:
    monkeypatch.setitem(EXPERIMENTS, name, Experiment(lambda of, scratch, passes: run(of), promised))


def read(folder: Path) -> Report:
    return Report.model_validate_json((folder / REPORT).read_text())


def test_what_an_ended_process_leaves_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "KEEP_S", 0.0)

    def ended(of: Bench) -> Sessions:
        of.keep(Sessions(sessions=[ONE]))
        of.keep(Sessions(sessions=[ONE, ONE]))
        raise KeyboardInterrupt  # as if by a kill: nothing is written after it

    stand_in(monkeypatch, "aa", ended)
    with pytest.raises(KeyboardInterrupt):
        selftest(bench(tmp_path), "aa").run()
    left = read(tmp_path)
    assert (left.at_work, [promise.measured for promise in left.promises]) == ("aa", ["2 sessions"])
    assert "aa" in left.seconds
    kept = Sessions.model_validate_json((tmp_path / "aa" / "aa.json").read_text())
    assert len(kept.sessions) == 2
    assert (tmp_path / "aa" / "plot.svg").is_file()


def test_an_experiment_that_is_done_is_not_called_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "KEEP_S", 0.0)

    def whole(of: Bench) -> Sessions:
        of.keep(Sessions(sessions=[ONE]))
        return Sessions(sessions=[ONE, ONE, ONE])

    stand_in(monkeypatch, "aa", whole)
    selftest(bench(tmp_path), "aa").run()
    left = read(tmp_path)
    assert (left.at_work, [promise.measured for promise in left.promises]) == (None, ["3 sessions"])


def test_what_there_is_so_far_is_not_written_all_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def whole(of: Bench) -> Sessions:
        of.keep(Sessions(sessions=[ONE]))
        assert not (tmp_path / REPORT).exists()
        return Sessions(sessions=[ONE])

    stand_in(monkeypatch, "aa", whole)
    report = selftest(bench(tmp_path), "aa").run()
    assert report.failed == {}


def test_after_one_writing_the_next_has_to_wait_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "KEEP_S", 0.5)

    def whole(of: Bench) -> Sessions:
        time.sleep(0.5)
        of.keep(Sessions(sessions=[ONE]))
        of.keep(Sessions(sessions=[ONE, ONE]))
        kept = Sessions.model_validate_json((tmp_path / "aa" / "aa.json").read_text())
        assert len(kept.sessions) == 1
        return kept

    stand_in(monkeypatch, "aa", whole)
    selftest(bench(tmp_path), "aa").run()


def test_what_an_experiment_leaves_of_its_time_the_next_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[float] = []

    def at_once(of: Bench) -> Sessions:
        left.append(of.deadline - time.monotonic())
        return Sessions(sessions=[])

    for name in ("aa", "truth"):
        stand_in(monkeypatch, name, at_once)
    selftest(bench(tmp_path, aa=100.0, truth=50.0), "aa", "truth").run()
    assert left == [pytest.approx(100, abs=5), pytest.approx(150, abs=10)]


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_machine_does_once_is_in_nobodys_time_even_where_the_experiment_ends_with_an_error(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[float] = []

    def compiles(of: Bench) -> Sessions:
        of.deadline += 70.0
        if fails:
            raise RuntimeError("no memory")
        return Sessions(sessions=[])

    def at_once(of: Bench) -> Sessions:
        left.append(of.deadline - time.monotonic())
        return Sessions(sessions=[])

    stand_in(monkeypatch, "aa", compiles)
    stand_in(monkeypatch, "truth", at_once)
    report = selftest(bench(tmp_path, aa=100.0, truth=50.0), "aa", "truth").run()
    assert left == [pytest.approx(220, abs=10)]
    assert bool(report.failed) == fails


def test_experiments_that_are_asked_for_have_the_time_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[float] = []

    def at_once(of: Bench) -> Sessions:
        left.append(of.deadline - time.monotonic())
        return Sessions(sessions=[])

    stand_in(monkeypatch, "truth", at_once)
    selftest(bench(tmp_path, aa=100.0, truth=50.0), "truth").run()
    assert left == [pytest.approx(150, abs=5)]


def test_an_experiment_that_takes_too_long_takes_nothing_from_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[float] = []

    def late(of: Bench) -> Sessions:
        left.append(of.deadline - time.monotonic())
        return Sessions(sessions=[])

    for name in ("aa", "truth"):
        stand_in(monkeypatch, name, late)
    selftest(bench(tmp_path, aa=-1000.0, truth=50.0), "aa", "truth").run()
    assert left[1] == pytest.approx(50, abs=5)


def test_where_sessions_lack_memory_their_experiment_fails_in_a_line_and_the_next_has_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crowded(*_: Any, **__: Any) -> Any:
        raise Crowded

    monkeypatch.setattr(sessions, "record", crowded)

    def some(of: Bench) -> None:
        sessions.side_by_side(of, [SimpleNamespace()], tmp_path, lambda index: None, of.keep)  # type: ignore[list-item]

    stand_in(monkeypatch, "aa", some)
    stand_in(monkeypatch, "truth", lambda of: Sessions(sessions=[ONE]))
    report = selftest(bench(tmp_path), "aa", "truth").run()
    said = "no memory on the device for 1 sessions at a time: end what else holds it, such as other processes"
    assert report.failed == {"aa": said}
    assert len(report.promises) == 1


def test_lines_that_are_not_yet_whole_are_left_for_later(tmp_path: Path) -> None:
    path = tmp_path / "others.jsonl"
    path.write_text('{"a": 1}\n{"b": 2}\n{"c"')
    assert rivals._lines(path) == [{"a": 1}, {"b": 2}]


def process(code: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", code])


def test_a_process_of_ones_own_is_looked_at_while_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rivals, "LOOK_S", 0.05)
    looked: list[int] = []
    assert rivals._wait(process("import time; time.sleep(0.5)"), 60.0, lambda: looked.append(1)) is None
    assert len(looked) > 1
    assert rivals._wait(process("raise SystemExit(3)"), 60.0, lambda: None) == "the process ended with code 3"
    with process("import time; time.sleep(60)") as hung:
        assert "was not done after 0 s" in (rivals._wait(hung, 0.1, lambda: None) or "")
        hung.kill()


def test_a_process_that_hangs_is_ended_with_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = tmp_path / "python"
    hangs.write_text("#!/bin/sh\nexec sleep 20\n")
    hangs.chmod(0o755)
    monkeypatch.setattr(rivals, "sys", SimpleNamespace(executable=str(hangs)))
    began = time.monotonic()
    lines, error = rivals.ask(bench(tmp_path), tmp_path, {"task": "others"}, 0.2)
    assert json.loads((tmp_path / "others.json").read_text())["samples"] == QUICK.others_samples
    assert (lines, time.monotonic() - began < 10) == ([], True)
    assert "was not done after 0 s and was ended; see " in (error or "")


def test_what_the_process_has_written_so_far_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timing = {"pair": "p", "method": "m", "repeat": 0, "a_us": 1.0, "b_us": 1.0, "ratio": 1.0, "seconds": 0.1}
    kept: list[Others] = []

    def asked(of: Bench, root: Path, task: Any, limit_s: float, meanwhile: Callable[[Any], None]) -> Any:
        meanwhile([timing, {"failed": "ch01:x", "reason": "why"}])
        return [timing, timing], None

    monkeypatch.setattr(rivals, "ask", asked)
    monkeypatch.setattr(rivals, "subjects", lambda gpu: [])
    of = bench(tmp_path)
    of.deadline, of.keep = time.monotonic() + 1, lambda found: kept.append(found.model_copy())  # type: ignore[arg-type]
    found = rivals.experiment(of, tmp_path)
    assert [len(one.timings) for one in kept] == [1, 2]
    assert kept[0].skipped == {"triton do_bench": "it times GPUs only", "ch01:x": "why"}
    assert found.skipped == {"triton do_bench": "it times GPUs only"}


def test_preparing_counts_for_every_method(monkeypatch: pytest.MonkeyPatch) -> None:
    from tools.selftest import rival_process  # which imports torch

    steps = {name: SimpleNamespace(step=lambda: ()) for name in ("baseline_a", "optimized_a")}

    def prepare(names: list[str], size: str, dtypes: list[str]) -> dict[str, Any]:
        time.sleep(0.2)
        return {"failures": {}}

    given: list[float] = []

    def method(step: Any, seconds: float) -> float:
        given.append(seconds)
        return 1.0

    worker: Any = SimpleNamespace(prepare=prepare, prep=SimpleNamespace(variants=steps))
    of: Any = pair("ch01:a", "baseline", "optimized")
    found = rival_process.by_rival(worker, of, "cpu", rival_process.Rival("m", method), 0, 1.0)
    assert given == [pytest.approx(0.4, abs=0.05)] * 2
    assert found.seconds >= 0.2


def test_what_a_method_takes_beyond_what_it_is_asked_for_is_taken_off_the_next_time() -> None:
    from tools.selftest import rival_process  # which imports torch

    given: list[float] = []
    beyond = iter([0.2, 0.2, 0.1, 0.1, 0.3, 0.3, 0.1, 0.1])

    def method(step: Any, seconds: float) -> float:
        given.append(seconds)
        time.sleep(seconds + next(beyond))
        return 1.0

    rival = rival_process.Rival("m", method)
    for done in range(4):
        rival.compare([lambda: (), lambda: ()], 0.5, done)
    asked = [0.25, 0.05, 0.15, 0.15]  # half of what is left after the least so far: 0, 0.4, 0.2, 0.2 s
    assert given == [pytest.approx(seconds, abs=0.03) for seconds in asked for _ in range(2)]


def pair(key: str, *roles: str) -> SimpleNamespace:
    chapter, name = key.split(":")
    variants = [SimpleNamespace(name=f"{role}_{name}", role=role, module=f"{key}.{role}") for role in roles]
    found = SimpleNamespace(key=key, chapter=chapter, name=name, variants=variants)
    found.only = lambda names: pair(key, *(one.role for one in variants if one.name in names))
    return found


def source(code: bytes) -> SimpleNamespace:
    """A path, to whoever reads it."""
    return SimpleNamespace(read_bytes=lambda: code)


def sound(monkeypatch: pytest.MonkeyPatch, *roles: str) -> list[SimpleNamespace]:
    """Five pairs that are in order are all that the chapters have."""
    pairs = [pair(f"ch0{n}:a", *roles) for n in range(1, 6)]
    for one in pairs:
        one.baseline = one.variants[0]
        for variant in one.variants:
            variant.kinds, variant.problem, variant.path = ("PyTorch",), None, source(b"")
    monkeypatch.setattr(suites, "find_pairs", lambda root: pairs)
    return pairs


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], float]]:
    """What the suites were asked to run, and their budgets; nothing is run."""
    found: list[tuple[list[str], float]] = []

    def ran(of: Bench, targets: list[str], budget_s: float, seconds: float, keep: Callable[[Pass], None]) -> Any:
        found.append((targets, budget_s))
        keep(PASS)
        return PASS, []

    pairs = [pair("ch01:a", "baseline", "optimized", "peer"), pair("ch02:b", "baseline", "optimized")]
    monkeypatch.setattr(suites, "find_pairs", lambda root: pairs)
    monkeypatch.setattr(suites, "choose", lambda of, passes, every=False: setattr(passes, "chosen", ["ch01:a"]))
    monkeypatch.setattr(suites, "one_pass", ran)
    return found


def test_the_pairs_that_are_chosen_are_compiled_side_by_side_before_one_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    pairs = sound(monkeypatch, "baseline", "optimized")
    pairs[2].variants[1].problem = "no docstring"
    pairs[4].baseline = None
    monkeypatch.setattr(suites, "missing", lambda one, *about: ["two GPUs"] if one is pairs[3] else [])
    monkeypatch.setattr(suites, "compile_ahead", lambda chosen, *how: done.append(" ".join(one.key for one in chosen)))
    monkeypatch.setattr(suites, "compiled", lambda of, one: done.append(one.key))

    def compile_(self: Ahead, chosen: list[Any], *how: Any) -> None:
        done.append(f"{self.share:.0%} of the time: {' '.join(one.key for one in chosen)}")

    monkeypatch.setattr(Ahead, "compile", compile_)
    now = iter([10.0, 13.0])  # before and behind all that compiles
    monkeypatch.setattr(suites, "time", SimpleNamespace(monotonic=lambda: next(now)))
    of, passes = bench(tmp_path), Passes()
    of.deadline, of.form = 40.0, replace(of.form, suite_pairs=2)
    suites.choose(of, passes)
    assert passes.chosen == ["ch01:a", "ch02:a"]
    assert done == ["ch01:a ch02:a", "ch01:a", "ch02:a", "100% of the time: ch01:a ch02:a"]
    assert (passes.rest, passes.unable) == (["ch03:a", "ch05:a"], ["ch04:a"]), "what is faulty is run, to fail"
    assert of.deadline == 43.0
    suites.choose(of, passes)
    assert len(done) == 4, "once"


@pytest.mark.parametrize(("form", "drawn"), [(QUICK, {"ch01:a", "ch04:a"}), (FULL, {f"ch0{n}:a" for n in range(1, 6)})])
def test_the_quick_form_draws_no_pair_that_takes_long_to_compile(
    form: Form, drawn: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = sound(monkeypatch, "baseline", "optimized")
    pairs[1].variants[1].kinds = ("Triton",)
    pairs[2].variants[0].path = source(b"torch.compile(step)")
    pairs[4].variants[0].kinds, pairs[3].variants[0].kinds = ("CUDA", "Triton"), ("CUDA",)
    monkeypatch.setattr(suites, "compile_ahead", lambda *_: None)
    monkeypatch.setattr(suites, "compiled", lambda *_: None)
    monkeypatch.setattr(suites, "missing", lambda *_: None)
    monkeypatch.setattr(Ahead, "compile", lambda *_: None)
    seen: set[str] = set()
    for seed in range(40):
        of, passes = replace(bench(tmp_path), form=form, seed=seed, device="NVIDIA H200"), Passes()
        suites.choose(of, passes)
        seen |= set(passes.chosen)
    assert seen == drawn


def test_where_every_pair_is_run_all_are_compiled_side_by_side_and_those_not_chosen_without_peers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound(monkeypatch, "baseline", "optimized", "peer")
    monkeypatch.setattr(suites, "missing", lambda one, *about: ["two GPUs"] if one.key == "ch05:a" else [])
    asked: list[dict[str, int]] = []

    def compiled(of: Bench, asked_for: list[Any]) -> list[str]:
        asked.append({one.key: len(one.variants) for one in asked_for})
        return [one.key for one in asked_for if one.key != "ch02:a"]

    monkeypatch.setattr(suites, "_compiled", compiled)
    of, passes = bench(tmp_path), Passes()
    of.form = replace(of.form, suite_pairs=4)
    suites.choose(of, passes, every=True)
    assert asked == [{f"ch0{n}:a": 3 for n in range(1, 5)}]
    assert (passes.chosen, passes.rest) == (["ch01:a", "ch03:a", "ch04:a"], ["ch02:a"])
    of.form, asked[:], passes = replace(of.form, suite_pairs=1), [], Passes()
    suites.choose(of, passes, every=True)
    assert sorted(asked[0].values()) == [2, 2, 2, 3]


def test_cheats_and_their_twins_are_judged_by_three_rounds(
    tmp_path: Path, asked: list[tuple[list[str], float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session of one block has one wall for each variant, and that of an honest one may be a slow one."""
    iterations: list[int] = []

    def ran(*about: Any, **how: Any) -> Any:
        iterations.append(how["iterations"])
        return SimpleNamespace(pairs=[], not_run={})

    monkeypatch.setattr(cheats, "run_suite", ran)
    (tmp_path / cheats.CHEATS).mkdir(parents=True)
    of = bench(tmp_path)
    of.root, of.deadline, of.keep = tmp_path, time.monotonic() + 9, lambda found: None
    cheats.experiment(of, tmp_path, Passes())
    assert [len(fixed_plan(count) or []) for count in iterations] == [FEWEST_ROUNDS]


@pytest.mark.parametrize("every", [False, True])
def test_the_full_form_runs_every_honest_pair(every: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is refused, one is faulty, which is no reason to leave it out, and for one there is no time."""
    measured = PairResult(chapter="ch01", name="a", status="measured", device="cpu")
    every_one = [pair(f"ch0{n}:{name}", "baseline", "optimized", "peer") for n, name in enumerate("abcde", 1)]
    monkeypatch.setattr(suites, "find_pairs", lambda root: every_one)
    refused = PairResult(chapter="ch02", name="b", status="failed", device="cpu")
    refused.variants = [VariantResult.model_validate(ROW | {"status": "failed", "reason": "it lied"})]
    lone = PairResult(chapter="ch03", name="c", status="failed", device="cpu", reason="no baseline_c.py")
    lone.variants = [VariantResult.model_validate(ROW | {"status": "proven"})]
    ran: list[tuple[list[str], dict[str, Any]]] = []

    def run(of: Bench, root: Path, targets: list[str], seconds: float, **how: Any) -> Any:
        ran.append((targets, how))
        return SimpleNamespace(pairs=[refused, lone])

    def first(of: Bench, passes: Passes, every: bool) -> None:
        ahead.append(every)
        passes.chosen, passes.honest = ["ch01:a", "ch01:z"], [measured]

    monkeypatch.setattr(suites, "run_suite", run)
    monkeypatch.setattr(cheats, "first_quick", first)
    ahead: list[bool] = []
    of, passes = bench(tmp_path), Passes(rest=["ch02:b", "ch03:c", "ch04:d"], unable=["ch05:e"])
    of.form, of.deadline, of.keep = replace(of.form, every_pair=every), time.monotonic() + 9, lambda found: None
    found = cheats.experiment(of, tmp_path, passes)
    assert (found.honest_pairs, found.honest_not_run) == (1, ["ch01:z"] + ["ch04:d"] * every)
    assert found.honest_unable == ["ch05:e"]
    assert ahead == [every]
    alarms = [("ch02:b", "optimized_b", "it lied"), ("ch03:c", "itself", "no baseline_c.py")]
    assert [(row.pair, row.variant, row.reason) for row in found.rows if row.honest and row.refused] == alarms * every
    assert len(found.rows) == 2 * every
    files = [
        f"ch0{n}/{role}_{name}.py" for n, name in ((2, "b"), (3, "c"), (4, "d")) for role in ("baseline", "optimized")
    ]
    assert ran == [(files, {"budget_s": suites.QUICK_S, "shuffled": True})] * every


def test_no_pair_more_is_not_every_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A suite of no targets would be one of all."""
    monkeypatch.setattr(suites, "run_suite", lambda *about, **how: pytest.fail("it ran"))
    monkeypatch.setattr(suites, "find_pairs", lambda root: [pair("ch03:c", "baseline")])
    assert suites.rest_quick(bench(tmp_path), Passes()) == []


@pytest.mark.parametrize("every", [False, True])
def test_what_more_is_to_run_is_compiled_before_the_first_quick_run(
    every: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[bool]()
    monkeypatch.setattr(suites, "choose", lambda of, passes, every: asked.append(every))
    suites.first_quick(bench(tmp_path), Passes(), every)
    assert asked == [every]


def test_what_a_quick_run_says_of_honest_pairs_is_kept_for_the_cheats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[tuple[list[str], float]]
) -> None:
    measured = PairResult(chapter="ch01", name="a", status="measured", device="cpu")
    monkeypatch.setattr(suites, "one_pass", lambda *about, **how: (PASS, [measured]))
    passes = Passes()
    suites.first_quick(bench(tmp_path), passes)
    assert passes.honest == [measured]


def test_the_default_run_of_the_cost_serves_repeat_too(tmp_path: Path, asked: list[tuple[list[str], float]]) -> None:
    """It is no first run, in which what compiles is compiled: that is the quick one among the cheats."""
    of, passes, kept = bench(tmp_path), Passes(), list[Any]()
    of.deadline, of.keep = time.monotonic() + 9, kept.append
    cheats.experiment(of, tmp_path, passes)
    suites.cost(of, tmp_path, passes)
    found = suites.repeat(of, tmp_path, passes)
    quick, default = (["ch01:a"], suites.QUICK_S), (["ch01:a"], suites.DEFAULT_S)
    again = (["ch01/baseline_a.py", "ch01/optimized_a.py"], suites.DEFAULT_S)
    assert asked == [quick, default, quick, *[again] * (QUICK.suite_passes - 1)]
    assert len(found.passes) == QUICK.suite_passes
    assert [len(one.passes) for one in kept[1:]] == [1, 2, 2], "a run that is cut off is kept beside those before it"


def test_repeat_by_itself_has_its_own_first_run(tmp_path: Path, asked: list[tuple[list[str], float]]) -> None:
    of, kept = bench(tmp_path), list[Any]()
    of.deadline, of.keep = time.monotonic() + 9, kept.append
    found = suites.repeat(of, tmp_path, Passes())
    assert len(found.passes) == len(asked) == QUICK.suite_passes
    assert {budget_s for _, budget_s in asked} == {suites.DEFAULT_S}


@pytest.mark.parametrize(("over_s", "runs"), [(-9.0, QUICK.suite_passes), (9.0, 1)])
def test_where_the_time_is_up_repeat_begins_no_further_run(
    over_s: float, runs: int, tmp_path: Path, asked: list[tuple[list[str], float]]
) -> None:
    of, passes = bench(tmp_path), Passes()
    of.deadline, of.keep = time.monotonic() - over_s, lambda found: None
    assert len(suites.repeat(of, tmp_path, passes).passes) == runs


def test_a_run_that_has_begun_gets_the_time_that_its_promise_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[tuple[list[str], float]]
) -> None:
    given: list[float] = []

    def ran(of: Bench, targets: list[str], budget_s: float, seconds: float, keep: Callable[[Pass], None]) -> Any:
        given.append(seconds)
        return PASS, []

    monkeypatch.setattr(suites, "one_pass", ran)
    of = bench(tmp_path)
    of.deadline = time.monotonic() - 1
    suites.cost(of, tmp_path, Passes())
    assert given == [suites.MOST_DEFAULT_S, 2 * suites.MOST_QUICK_S]


def test_cost_by_itself_keeps_the_default_run_beside_the_quick_one(
    tmp_path: Path, asked: list[tuple[list[str], float]]
) -> None:
    of, kept = bench(tmp_path), list[Any]()
    of.deadline, of.keep = time.monotonic() + 9, kept.append
    assert len(suites.cost(of, tmp_path, Passes()).passes) == 2
    assert [budget for _, budget in asked] == [suites.DEFAULT_S, suites.QUICK_S]
    assert [len(found.passes) for found in kept] == [1, 2]


@pytest.mark.parametrize(
    ("only", "form", "forked_from_compilers"),
    [(["cost"], FULL, True), (["aa", "others"], FULL, False), ([], FULL, True), ([], QUICK, False)],
)
def test_the_workers_of_suites_are_forked_from_what_a_run_forks_them_from(
    only: list[Name], form: Form, forked_from_compilers: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each pair that compiles would import the compiler, 3 s on an H200's host, which a run's pairs do not.

    The quick form draws no such pair.
    """
    told: list[list[Any]] = []

    def opened(root: Path, folder: Path, pairs: Any = ()) -> None:
        told.append(list(pairs))
        raise RuntimeError("that is all")

    monkeypatch.setattr(experiments, "open_machine", opened)
    monkeypatch.setattr(experiments, "find_pairs", lambda root: [root])
    with pytest.raises(RuntimeError, match="that is all"):
        experiments.open_selftest(tmp_path, tmp_path, only, form, 1, lambda line: None)
    assert told == [[tmp_path]] if forked_from_compilers else told == [[]]


def test_the_first_session_is_held_against_the_hosts_best_pace_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiments, "open_machine", lambda *_: (HOST, {"device": "cpu", "quiet_pace_us": 21.0}))
    opened = experiments.open_selftest(tmp_path, tmp_path, ["aa"], QUICK, 1, lambda line: None)
    assert opened.bench.best_pace_us == 21.0


@pytest.mark.parametrize(
    ("only", "form", "asked"), [([], QUICK, [False]), (["cost"], FULL, [True]), (["aa"], FULL, [])]
)
def test_the_quick_form_spends_no_minute_on_peaks(
    only: list[Name], form: Form, asked: list[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bool] = []
    monkeypatch.setattr(experiments, "open_machine", lambda *_: (HOST, {"device": "NVIDIA H200", "uuid": "ab-12"}))
    monkeypatch.setattr(experiments, "find_pairs", lambda root: [root])
    monkeypatch.setattr(experiments, "peaks_for_run", lambda *_, measure: told.append(measure))
    experiments.open_selftest(tmp_path, tmp_path, only, form, 1, lambda line: None)
    assert told == asked


@pytest.mark.parametrize(("budget_s", "quick"), [(suites.QUICK_S, True), (suites.DEFAULT_S, False)])
def test_a_quick_suite_of_a_selftest_is_what_quick_is_to_a_user(
    budget_s: float, quick: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[bool, bool]] = []

    def opened(options: Any, *_: Any, **__: Any) -> None:
        asked.append((options.quick, options.survey))
        raise RuntimeError("that is all")

    monkeypatch.setattr(suites, "open_suite", opened)
    with pytest.raises(RuntimeError, match="that is all"):
        suites.run_suite(bench(tmp_path), tmp_path, ["ch01"], 9.0, budget_s=budget_s)
    assert asked == [(quick, False)]
