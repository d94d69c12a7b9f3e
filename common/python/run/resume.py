"""Going on with a run: which of its results still stand, and what must be the same for new ones to stand beside them.

A pair whose own files have changed is measured anew. Where the harness, the machine or the way of measuring has, no new
result would compare with the old ones: that is refused.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from common.python.base import journal, safe_read
from common.python.base.results import Manifest, PairResult
from common.python.base.safe_read import read_model
from common.python.regress.environment import harness_changes
from common.python.report.artifacts import changed, read_journal

# These say how long, where to and what for, not how a pair is measured; seed has a field of its own.
FREE = {
    "artifacts_dir",
    "resume",
    "timeout_multiplier",
    "suite_timeout",
    "fail_fast",
    "profile",
    "seed",
    "jobs",
    "shard",
}


def go_on(folder: Path, now: Manifest, say: Callable[[str], None]) -> tuple[list[PairResult], Manifest]:
    """The results that stand, and the manifest of old and new together; the journal then names no others.

    `say` hears what is measured anew and why. Raises ValueError, in one line, where the runs do not belong together or
    the earlier one cannot be read.
    """
    safe_read.refuse_links(folder)
    before = read_model(folder / "manifest.json", Manifest)
    if found := differences(before, now):
        raise ValueError(
            f"{folder} was measured otherwise, so start a new run: {'; '.join(map(safe_read.shown, found))}"
        )
    journal.mend(folder, say)
    results = list({result.key: result for result in read_journal(folder)}.values())
    stale = {result.key: files for result in results if (files := changed(result, before, now))}
    for key, files in stale.items():
        say(f"{key} is measured anew: changed since: {', '.join(files)}")
    if stale:
        results = [result for result in results if result.key not in stale]
        journal.rewrite(folder, results)  # before the manifest, which says that all results are of these sources
    targets = list(dict.fromkeys([*before.targets, *now.targets]))
    options = now.options | {"shard": before.options.get("shard")}
    together = {"started": before.started, "targets": targets, "sources": before.sources | now.sources}
    return results, now.model_copy(update={**together, "options": options})


def differences(before: Manifest, now: Manifest) -> list[str]:
    """Why results of two runs do not belong into one that has one host, a phrase each."""
    found = of_code(before, now)
    if before.seed != now.seed:
        found.append(f"--seed was {before.seed}, is {now.seed}")
    found += _apart("", before.environment, now.environment)
    here = [(host.hostname, host.driver, [gpu.uuid for gpu in host.gpus]) for host in (before.machine, now.machine)]
    names = ("the host", "the driver", "the GPUs")
    return found + [f"{name} was {a or 'none'}, is {b or 'none'}" for name, a, b in zip(names, *here) if a != b]


def of_code(before: Manifest, now: Manifest) -> list[str]:
    """How the code that measured differs, and the way in which it was asked to, a phrase each."""
    found = []
    if files := harness_changes(before, now):
        more = f" and {len(files) - 3} more" if len(files) > 3 else ""
        found.append(f"the harness has changed ({', '.join(files[:3])}{more})")
    found += _apart("--", before.options, now.options, FREE)
    return found + _apart("", before.versions, now.versions)


def _apart(mark: str, before: dict[str, Any], now: dict[str, Any], free: Sequence[str] | set[str] = ()) -> list[str]:
    names = sorted({*before, *now} - {*free})
    spelled = ((name, f"{mark}{name.replace('_', '-') if mark else name}") for name in names)
    return [f"{word} was {before.get(n)}, is {now.get(n)}" for n, word in spelled if before.get(n) != now.get(n)]
