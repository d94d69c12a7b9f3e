"""The wire to a worker: a line of JSON each way. User code shares the worker's end, so what comes is not believed.

A question carries a random word that its answer must repeat. Bytes that user code writes here, whole fake answers among
them, lack that word; half a line cannot make the reader wait longer than it was told to.
"""

import json
import math
import os
import secrets
import time
from collections.abc import Sequence
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
        self._foretold: list[dict[str, Any]] = []
        self._known: dict[str, Any] | None = None  # the answer to what was asked, if it is one of those

    def foretell(self, answered: Sequence[dict[str, Any]]) -> None:
        """The worker has done these commands and answered them, and stands where they leave it.

        Whoever asks the same in the same order gets those answers; with the first other question, what is left is void.
        """
        self._foretold = list(answered)

    def ask(self, command: str, arguments: dict[str, Any]) -> None:
        """Raises OSError if the other end is gone."""
        asked = {"command": command, "arguments": arguments}
        following, self._foretold = self._foretold[:1], self._foretold[1:]
        if following and following[0] == asked | {"answer": following[0]["answer"]}:
            self._known = following[0]["answer"]
            return
        self._foretold, self._known = [], None
        self._word = secrets.token_hex(8)
        self._send({WORD: self._word, "command": command, "arguments": arguments})

    def answer(self, timeout_s: float) -> dict[str, Any]:
        """Wait for the answer. Raises TimeoutError, Forged, and EOFError or OSError if the other end is gone."""
        if self._known is not None:
            return self._known
        try:
            found = json.loads(self._line(time.monotonic() + max(timeout_s, 0.0)))
        except (ValueError, RecursionError) as error:
            raise Forged from error
        if not isinstance(found, dict) or found.get(WORD) != self._word or ("value" in found) == ("error" in found):
            raise Forged
        return found

    def heard(self) -> bool:
        """Whether there is something to read, be it the end."""
        return self._connection.poll()

    def asked(self) -> tuple[str, str, dict[str, Any]]:
        """In the worker: wait for a question; its word, command and arguments. Raises EOFError at the end."""
        found = json.loads(self._line(None))
        return found[WORD], found["command"], found["arguments"]

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
