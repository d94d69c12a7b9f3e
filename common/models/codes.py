"""Code of its own for each variant that has torch compile what the others compile as well."""

from functools import cache
from types import FunctionType


@cache
def own(code: FunctionType, owner: str) -> FunctionType:
    """A copy of `code` for the file `owner`, in every round the same one.

    torch keeps and counts what it compiles by code object, so variants that compile one function would share both.
    """
    copy = FunctionType(code.__code__.replace(), code.__globals__, code.__name__, code.__defaults__, code.__closure__)
    copy.__kwdefaults__ = code.__kwdefaults__
    return copy
