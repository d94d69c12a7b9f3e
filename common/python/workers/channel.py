"""The wire to a worker: a line of JSON each way. User code shares the worker's end, so what comes is not believed.

A question carries a random word that its answer must repeat. Bytes that user code writes here, whole fake answers among
them, lack that word; half a line cannot make the reader wait longer than it was told to.
"""

import json
import math
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

MOST_BYTES = 64 << 20  # the largest honest answer, a block of all variants with its proofs, has under 100 kB
WORD, WANTS = "word", "wants the machine to itself"


class Forged(Exception):
    """What came is no answer to what was asked."""


class Channel:
    """One end of the connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._pending, self._word = connection, bytearray(), ""
        self._alone = False  # a worker that has the machine to itself

    def ask(self, command: str, arguments: dict[str, Any]) -> None:
        """Raises OSError if the other end is gone."""
        self._word = secrets.token_hex(8)
        self._send({WORD: self._word, "command": command, "arguments": arguments})

    def answer(self, timeout_s: float) -> dict[str, Any]:
        """Wait for the answer, or for what is wanted first (WANTS), which `grant` says is so.

        Raises TimeoutError, Forged, and EOFError or OSError if the other end is gone.
        """
        try:
            found = json.loads(self._line(time.monotonic() + max(timeout_s, 0.0)))
        except (ValueError, RecursionError) as error:
            raise Forged from error
        if not isinstance(found, dict) or found.get(WORD) != self._word:
            raise Forged
        if sum(key in found for key in ("value", "error", WANTS)) != 1:
            raise Forged
        return found

    def grant(self, others: bool) -> None:
        """Say that it is as was wanted, and whether others' work may still be on the GPU."""
        self._send({WORD: self._word, "others": others})

    def asked(self) -> tuple[str, str, dict[str, Any]]:
        """In the worker: wait for a question; its word, command and arguments. Raises EOFError at the end."""
        found = json.loads(self._line(None))
        self._word = found[WORD]
        return self._word, found["command"], found["arguments"]

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """In the worker, at work on an answer: have the machine to itself inside; whether others had been at work."""
        if self._alone:
            yield False
            return
        self._send({WORD: self._word, WANTS: True})
        others, self._alone = bool(json.loads(self._line(None))["others"]), True
        try:
            yield others
        finally:
            self._send({WORD: self._word, WANTS: False})
            self._line(None)
            self._alone = False

    def reply(self, word: str, answer: dict[str, Any]) -> None:
        """In the worker."""
        self._send({WORD: word, **answer})

    def close(self) -> None:
        self._connection.close()

    def _send(self, message: dict[str, Any]) -> None:
        left = json.dumps(message).encode() + b"\n"
        while left:
            left = left[os.write(self._connection.fileno(), left) :]

    def _line(self, deadline: float | None) -> bytes:
        while b"\n" not in self._pending[-(1 << 16) :]:
            left_s = None if deadline in (None, math.inf) else max(0.0, deadline - time.monotonic())
            if not self._connection.poll(left_s):
                raise TimeoutError
            part = os.read(self._connection.fileno(), 1 << 16)
            if not part:
                raise EOFError
            self._pending += part
            if len(self._pending) > MOST_BYTES:
                raise Forged
        line, _, self._pending = self._pending.partition(b"\n")
        return bytes(line)
