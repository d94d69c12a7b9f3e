"""Every pair as `list` shows it. It loads little, since it must answer at once: rich only for a terminal."""

import sys
from dataclasses import replace

from common.python.discovery import Pair, Variant
from common.python.launch import ONE_HOST
from common.python.machine import Machine
from common.python.requirements import Requirements, unmet
from common.python.text import clean

COLUMNS = ("pair", "variant", "kind", "needs", "here", "mechanism")


def print_list(pairs: list[Pair], machine: Machine) -> None:
    """A line for each variant: a table on a terminal, tab-separated in a pipe."""
    rows = [_row(pair, variant, machine) for pair in pairs for variant in pair.variants]
    if not sys.stdout.isatty():
        print("\n".join("\t".join(row) for row in rows))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*COLUMNS, box=None, pad_edge=False, show_edge=False)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def _row(pair: Pair, variant: Variant, machine: Machine) -> tuple[str, ...]:
    required = variant.required
    if pair.gpus > required.gpus and pair.gpus > 1:
        required = replace(required, gpus=pair.gpus)
    missing = unmet(variant.required, machine) + ONE_HOST.unmet(pair, machine)  # without any GPU, ranks use the CPU
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
    return ", ".join([*words, *required.modules, *required.tools, *required.headers])
