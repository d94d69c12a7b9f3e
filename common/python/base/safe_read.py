"""Files that somebody else may have written, read within bounds: regular ones, of a size that can be, in their folder.

Whatever is wrong with one is told in one line by one type of error, so that no command ends in a traceback.
"""

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from common.python.base.text import clean

MOST_BYTES = 64 * 2**20  # the largest file of a run that was seen, every sample of a GEMM with three rungs, has 0.9 MB
MOST_TOLD = 200  # characters of what is wrong: it may quote the file

Read = TypeVar("Read", bound=BaseModel)


def read_bytes(path: Path) -> bytes:
    """A whole file. Raises OSError where it cannot be read, ValueError where it is no file or over 64 MiB."""
    kind = path.stat().st_mode
    if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):  # a pipe would never end, a device might not either
        raise ValueError("it is no regular file")
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)  # whatever its size is said to be
    if len(content) > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES >> 20} MiB, which no file of this harness is")
    return content


def read_model(path: Path, model: type[Read]) -> Read:
    """A JSON file of the schema. Raises ValueError naming the file and the first thing that is wrong with it."""
    with named(path):
        return parse(read_bytes(path), model)


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Whatever is wrong with a file, as a ValueError in one line that names it."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"{shown(str(path))} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise ValueError(f"{shown(str(path))} is damaged or foreign: {error}") from error


def parse(content: bytes, model: type[Read]) -> Read:
    """JSON of the schema. Raises ValueError saying what is wrong first."""
    try:
        from_json(content, allow_inf_nan=False)  # which the harness never writes, and which no field expects
        return model.model_validate_json(content)
    except ValidationError as error:
        raise ValueError(first_of(error)) from error
    except ValueError as error:
        raise ValueError(shown(str(error))) from error


def first_of(error: ValidationError) -> str:
    """The first thing that is wrong, and where, in one short line: field names come from the file too."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where, what = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
    return shown(": ".join(filter(None, [where, what])))


def shown(text: str) -> str:
    """Text from such a file in one short line."""
    told = clean(text)
    return told if len(told) <= MOST_TOLD else f"{told[:MOST_TOLD]}..."
