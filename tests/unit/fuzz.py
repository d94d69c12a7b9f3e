"""Damage to real files, drawn from a seeded generator: what a disk, an editor, another program or an attacker leaves.

Every mutation is a function of a generator and of the file's bytes, so that a property test can draw it from anywhere.
"""

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

Mutation = Callable[[random.Random, bytes], bytes]
HOSTILE_TEXT = (
    *("", "\x00", "\n\n\r", "\x1b[31mred\x1b[0m\x07", "\u202etfel", "\ud800", "\ufeff", "../../etc", "/etc/passwd"),
    *("a" * 100_000, "../" * 1000, "%s%n{0}{x}", "<script>", "[bold]", "ch07:transpose\nok", "\u2028", "\U0001f600"),
)
HOSTILE_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 99, 2**31, 2**63, 2**64, -(2**63), 10**400, 0.0, -0.0, 5e-324, 1e308, -1e308),
    *(float("nan"), float("inf"), float("-inf"), [], {}, [[]], [None], {"": None}, {"\x1b[31m\n": 1}, *HOSTILE_TEXT),
)


def truncated(rng: random.Random, content: bytes) -> bytes:
    return content[: rng.randrange(len(content))]


def flipped(rng: random.Random, content: bytes) -> bytes:
    damaged = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def spliced(rng: random.Random, content: bytes) -> bytes:
    """A stretch doubled, dropped or moved, as two writers of one file leave it."""
    first, last = sorted(rng.randrange(len(content)) for _ in range(2))
    place = rng.randrange(len(content))
    return rng.choice(
        (
            content[:first] + content[last:],
            content[:last] + content[first:],
            content[:place] + content[first:last] + content[place:],
        )
    )


def nested(rng: random.Random, content: bytes) -> bytes:
    deep = rng.choice((100, 1000, 100_000))
    inner = rng.choice((b"[" * deep + b"]" * deep, b'{"a":' * deep + b"1" + b"}" * deep, b"[" * deep))
    return rng.choice((inner, content.rstrip()[:-1] + b', "deep": ' + inner + b"}"))


def swapped(rng: random.Random, content: bytes) -> bytes:
    """One value, anywhere in the document, becomes one of another type, size or sign."""
    document = json.loads(content)
    holder, key = rng.choice(list(places(document)))
    holder[key] = rng.choice(HOSTILE_VALUES)
    return dumped(document)


def renamed(rng: random.Random, content: bytes) -> bytes:
    """A field is gone, or goes by another name."""
    document = json.loads(content)
    holder, key = rng.choice([place for place in places(document) if isinstance(place[0], dict)])
    value = holder.pop(key)
    if rng.random() < 0.5:
        holder[rng.choice(HOSTILE_TEXT)] = value
    return dumped(document)


def repeated(rng: random.Random, content: bytes) -> bytes:
    """A key of the outermost object stands twice, with another value."""
    document = json.loads(content)
    key = rng.choice(list(document))
    pair = dumped({key: rng.choice(HOSTILE_VALUES)})[1:-1]
    return rng.choice((b"{" + pair + b", " + content.lstrip()[1:], content.rstrip()[:-1] + b", " + pair + b"}"))


def other_version(rng: random.Random, content: bytes) -> bytes:
    return dumped({**json.loads(content), "schema_version": rng.choice((0, 3, 99, -1, 2**70, "1", None, 1.5))})


def foreign(rng: random.Random, content: bytes) -> bytes:
    return rng.choice(
        (b"", b"\n", b"null", b"[]", b"{}", b"0", b'""', b"\xff\xfe\x00", b"%PDF-1.7", rng.randbytes(999))
    )


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


BYTES: tuple[Mutation, ...] = (truncated, flipped, spliced, nested, foreign)
DOCUMENT: tuple[Mutation, ...] = (swapped, swapped, swapped, renamed, repeated, other_version)


def mutate(rng: random.Random, content: bytes) -> bytes:
    """Bytes of a JSON object, damaged in one way."""
    return rng.choice(BYTES + DOCUMENT)(rng, content)


def word(rng: random.Random) -> str:
    """What somebody may type, or paste, as a target."""
    pieces = (
        "ch07",
        "ch7",
        ":",
        "/",
        "..",
        "transpose",
        "optimized_",
        "baseline_x.py",
        "all",
        "ch",
        "99",
        "\u0667",
        " ",
    )
    made = "".join(rng.choice((*pieces, *HOSTILE_TEXT)) for _ in range(rng.randint(1, 5)))
    return made if rng.random() < 0.8 else "ch" + "9" * rng.choice((5, 5000, 100_000))
