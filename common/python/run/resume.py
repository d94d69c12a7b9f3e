"""Going on with a run: which of its results still stand, and what must be the same for new ones to stand beside them.

A pair whose own files have changed is measured anew. Where the harness, the machine or the way of measuring has, no new
result would compare with the old ones: that is refused.
"""

from collections.abc import Callable
from pathlib import Path

from common.python.base import safe_read
from common.python.base.results import Manifest, PairResult
from common.python.regress import environment
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
    """The results that stand, and the manifest of old and new together.

    `say` hears what is measured anew and why. Raises ValueError, in one line, where the runs do not belong together or
    the earlier one cannot be read.
    """
    results = list({result.key: result for result in read_journal(folder)}.values())
    before = safe_read.read_model(folder / "manifest.json", Manifest)
    if found := differences(before, now):
        told = "; ".join(map(safe_read.shown, found))
        raise ValueError(f"{folder} was measured otherwise, so start a new run: {told}")
    stale = {result.key: files for result in results if (files := changed(result, before, now))}
    for key, files in stale.items():
        say(f"{key} is measured anew: changed since: {', '.join(files)}")
    results = [result for result in results if result.key not in stale]
    targets = list(dict.fromkeys([*before.targets, *now.targets]))
    options = now.options | {"shard": before.options.get("shard")}
    together = {"started": before.started, "targets": targets, "sources": before.sources | now.sources}
    return results, now.model_copy(update={**together, "options": options})


def differences(before: Manifest, now: Manifest) -> list[str]:
    """Why results of two runs do not belong into one that has one host, a phrase each."""
    return of_code(before, now) + environment.differences(*map(_place, (before, now)))


def _place(about: Manifest) -> dict[str, str | None]:
    host = about.machine
    gpus = ", ".join(gpu.uuid for gpu in host.gpus)
    return {"--seed": str(about.seed), **about.environment, "host": host.hostname, "driver": host.driver, "GPUs": gpus}


def of_code(before: Manifest, now: Manifest) -> list[str]:
    """How the code that measured differs, and the way in which it was asked to, a phrase each."""
    files = environment.harness_changes(before, now)
    more = f" and {len(files) - 3} more" if len(files) > 3 else ""
    found = [f"the harness has changed ({', '.join(files[:3])}{more})"] if files else []
    return found + environment.differences(*(environment.options(one, FREE) | one.versions for one in (before, now)))
