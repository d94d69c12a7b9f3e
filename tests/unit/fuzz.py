"""Damage to real files, as hypothesis draws it: what a disk, an editor, another program or an attacker leaves.

The examples are the same in each run of the tests. `FUZZ_EXAMPLES=5000 pytest tests/unit/test_fuzz.py` draws that many
for each property, others each time.
"""

import json
import os
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

HOSTILE_TEXT = (
    *("", "\x00", "\n\n\r", "\x1b[31mred\x1b[0m\x07", "\u202etfel", "\ud800", "\ufeff", "../../etc", "/etc/passwd"),
    *("a" * 100_000, "../" * 1000, "%s%n{0}{x}", "<script>", "[bold]", "ch07:transpose\nok", "\u2028", "\U0001f600"),
)
HOSTILE_NUMBERS = (
    *(0, -1, 1, 99, 2**31, 2**63, 2**64, -(2**63), 10**400, 0.0, -0.0, 5e-324, 1e308, -1e308),
    *(float("nan"), float("inf"), float("-inf")),
)
TEXT = st.sampled_from(HOSTILE_TEXT) | st.text(st.characters(), max_size=20)
LEAVES = st.sampled_from(HOSTILE_NUMBERS) | TEXT | st.none() | st.booleans() | st.integers() | st.floats()
VALUES = st.recursive(LEAVES, lambda few: st.lists(few, max_size=3) | st.dictionaries(TEXT, few, max_size=3))
NUMBERS = st.sampled_from(HOSTILE_NUMBERS) | st.integers() | st.floats()

# A pair's file, or something near to one.
LINES = (
    *('"""Doubles."""', "from common.python.workload import Workload", "requires = needs(gpus=1)", "requires = {}"),
    *("workload = Workload(isolated=True)", "requires = needs(sm={})", "def prepare(a): return {}", "import triton"),
)
DEEP = st.sampled_from(("(", "-", "not ", "lambda: ", "1+", "a.b(", "[", "x=", "{1:"))
CODE = (
    TEXT | VALUES.map(repr) | st.tuples(DEEP, st.sampled_from((50, 500, 5000))).map(lambda few: few[0] * few[1] + "1")
)
SOURCES = st.binary(max_size=99) | st.lists(st.tuples(st.sampled_from(LINES), CODE), max_size=5).map(
    lambda lines: "\n".join(line.replace("{}", code) for line, code in lines).encode(errors="surrogatepass")
)


def examples(number: int) -> settings:
    """How a property is tested: with this many examples, always the same, however long one takes."""
    asked = os.environ.get("FUZZ_EXAMPLES")
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    return settings(
        max_examples=int(asked or number),
        derandomize=asked is None,
        deadline=None,
        database=None,
        suppress_health_check=slow,
    )


def damaged(content: bytes) -> st.SearchStrategy[bytes]:
    """Bytes of a JSON object, damaged in one way."""
    whole = [other_bytes(), flipped(content), spliced(content), nested(content)]
    return st.one_of(*whole, changed(content), changed(content))  # as likely as two ways


@st.composite
def flipped(draw: st.DrawFn, content: bytes) -> bytes:
    damage = bytearray(content)
    for place in draw(st.lists(st.integers(0, 8 * len(content) - 1), min_size=1, max_size=9)):
        damage[place // 8] ^= 1 << place % 8
    return bytes(damage)


@st.composite
def spliced(draw: st.DrawFn, content: bytes) -> bytes:
    """A stretch doubled, dropped (to the end, as a full disk does) or moved, as two writers of one file leave it."""
    first, place, last = sorted(draw(st.integers(0, len(content))) for _ in range(3))
    dropped, doubled = content[:first] + content[last:], content[:last] + content[first:]
    moved = content[:first] + content[place:last] + content[first:place] + content[last:]
    return draw(st.sampled_from((dropped, doubled, moved)))


@st.composite
def nested(draw: st.DrawFn, content: bytes) -> bytes:
    deep = draw(st.sampled_from((100, 1000, 100_000)))
    inner = draw(st.sampled_from((b"[" * deep + b"]" * deep, b'{"a":' * deep + b"1" + b"}" * deep, b"[" * deep)))
    return draw(st.sampled_from((inner, content.rstrip()[:-1] + b', "deep": ' + inner + b"}")))


@st.composite
def changed(draw: st.DrawFn, content: bytes) -> bytes:
    """Up to three fields or elements are gone, go by another name, or have a value of any type, size or sign."""
    document = json.loads(content)
    for _ in range(draw(st.integers(1, 3))):
        found = list(places(document))
        holder, key = found[draw(st.integers(0, len(found) - 1))]
        number = isinstance(holder[key], int | float) and not isinstance(holder[key], bool)
        alike = NUMBERS if number else TEXT if isinstance(holder[key], str) else VALUES
        value = holder.pop(key)
        match draw(st.sampled_from(("gone", "renamed", "other", "other"))):
            case "renamed" if isinstance(holder, dict):
                holder[draw(TEXT)] = value
            case "other" if isinstance(holder, dict):
                holder[key] = draw(alike | VALUES)
            case "other":
                holder.insert(key, draw(alike | VALUES))
    return dumped(document)


def other_bytes() -> st.SearchStrategy[bytes]:
    known = st.sampled_from((b"", b"\n", b"null", b"[]", b"{}", b"0", b'""', b"\xff\xfe\x00", b"%PDF-1.7"))
    return known | st.binary(max_size=99) | VALUES.map(dumped)


def places(document: Any) -> Iterator[tuple[Any, Any]]:
    """Every value in a document, as its holder and the key or index in it."""
    pending = [document]
    while pending:
        holder = pending.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        for key in keys:
            yield holder, key
            pending.append(holder[key])


def dumped(document: Any) -> bytes:
    return json.dumps(document).encode()
