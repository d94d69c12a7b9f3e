"""Every pair as `list` shows it. It loads little, since it must answer at once."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby

from common.python.base.machine import Machine
from common.python.base.text import clean, hanging
from common.python.corpus.discovery import Pair, Variant
from common.python.requirements import Requirements, unmet
from common.python.workers.launch import ONE_HOST

Row = tuple[str, ...]  # pair, variant, kind, needs, here (yes, or why not), mechanism
NEXT = (
    "`benchmark_cli show ch07:transpose` shows the sources of a pair, `benchmark_cli run ch07:transpose` measures it, "
    "and `benchmark_cli show` lists the chapters."
)


def print_list(pairs: list[Pair], machine: Machine) -> None:
    """What each variant does, and whether it runs here: on a terminal by pairs, in a pipe a tab-separated line each."""
    told = cache(lambda required: unmet(required, machine))  # files share what they need
    rows = [_row(pair, variant, machine, told) for pair in pairs for variant in pair.variants]
    if not sys.stdout.isatty():
        print("\n".join("\t".join(row) for row in rows))
        return
    for key, own in groupby(rows, key=lambda row: row[0]):
        print(f"{key}\n{_block(list(own))}\n")
    print(hanging("", f"{len(pairs)} pair{'s' * (len(pairs) != 1)}. {NEXT}"))


def _block(rows: Sequence[Row]) -> str:
    """A pair's variants, then what they need and what of it is missing, said once for all that it is true of."""
    labels, kinds = (max(len(row[column]) for row in rows) for column in (1, 2))
    lines = [hanging(f"  {row[1]:<{labels}}  {row[2]:<{kinds}}  ", row[5]) for row in rows]
    missing = [(*row[:4], "" if row[4] == "yes" else row[4]) for row in rows]
    lines += [
        hanging(f"  {head}: ", said) for head, said in (("needs", _by(rows, 3)), ("not here", _by(missing, 4))) if said
    ]
    return "\n".join(lines)


def _by(rows: Sequence[Row], column: int) -> str:
    """What stands in a column, each with the variants that it is said of, or alone if that is all of them."""
    said: dict[str, list[str]] = {}
    for row in rows:
        said.setdefault(row[column], []).append(row[1])
    said.pop("", None)
    return "; ".join(text if len(who) == len(rows) else f"{text} ({', '.join(who)})" for text, who in said.items())


def _row(pair: Pair, variant: Variant, machine: Machine, told: Callable[[Requirements], list[str]]) -> Row:
    required = variant.required
    if pair.gpus > required.gpus and pair.gpus > 1:
        required = replace(required, gpus=pair.gpus)
    missing = told(variant.required) + ONE_HOST.unmet(pair, machine)  # without any GPU, ranks use the CPU
    here = "; ".join([variant.problem] if variant.problem else dict.fromkeys(missing)) or "yes"
    cells = (pair.key, variant.label, "+".join(variant.kinds), needs_text(required), here, variant.sentence)
    return tuple(map(clean, cells))  # names of files are foreign text, too


def needs_text(required: Requirements) -> str:
    """Needs as a reader would say them: `1 GPU, sm_90, cublas_v2.h`."""
    words = [f"{required.gpus} GPU{'s' * (required.gpus > 1)}"] * bool(required.gpus)
    words += [f"sm_{required.sm}"] * bool(required.sm) + list(required.targets)
    words += [f"{required.memory_gib:g} GiB"] * bool(required.memory_gib)
    words += [f"{required.host_memory_gib:g} GiB host"] * bool(required.host_memory_gib)
    words += [f"{required.cores} cores"] * (required.cores > 1)
    words += [f"{required.numa_nodes} NUMA nodes"] * (required.numa_nodes > 1)
    words += ["O_DIRECT"] * required.direct_io + ["huge pages"] * required.huge_pages
    return ", ".join([*words, *required.modules, *required.tools, *required.headers])
