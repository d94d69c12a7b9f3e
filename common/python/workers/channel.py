"""The connection to a worker: one line of JSON each way. User code can write to it too, so answers are not trusted.

Each question carries a random word that its answer must repeat. A fake answer that user code writes lacks that word,
and half a line cannot make the reader wait beyond its time limit.
"""

import contextlib
import json
import math
import os
import secrets
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

MOST_BYTES = 64 << 20  # the largest honest answer, a block of all variants with its proofs, has under 100 kB
WORD = "word"


class Forged(Exception):
    """What came is no answer to what was asked."""


class Channel:
    """One end of the connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._pending, self._word = connection, bytearray(), ""

    def ask(self, command: str, arguments: dict[str, Any]) -> None:
        """Raises OSError if the other end is gone."""
        self._word = secrets.token_hex(8)
        self._send({WORD: self._word, "command": command, "arguments": arguments})

    def answer(self, timeout_s: float) -> dict[str, Any]:
        """Wait for the answer. Raises TimeoutError, Forged, and EOFError or OSError if the other end is gone."""
        try:
            found = json.loads(self._line(time.monotonic() + max(timeout_s, 0.0)))
        except (ValueError, RecursionError) as error:
            raise Forged from error
        if not isinstance(found, dict) or found.get(WORD) != self._word or ("value" in found) is ("error" in found):
            raise Forged
        return found

    def serve(self, perform: Callable[[str, dict[str, Any]], dict[str, Any]]) -> None:
        """In the worker: answer questions until the other end is gone. `perform` gets the command and its arguments."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                asked = json.loads(self._line(math.inf))
                self._send({WORD: asked[WORD], **perform(asked["command"], asked["arguments"])})

    def close(self) -> None:
        self._connection.close()

    def _send(self, message: dict[str, Any]) -> None:
        left = json.dumps(message).encode() + b"\n"
        while left:
            left = left[os.write(self._connection.fileno(), left) :]

    def _line(self, deadline: float) -> bytes:
        while b"\n" not in self._pending[-(1 << 16) :]:
            left_s = None if math.isinf(deadline) else max(0.0, deadline - time.monotonic())
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
