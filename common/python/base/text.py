"""Text from pairs, compilers and exceptions, made safe to show."""


def clean(text: str) -> str:
    """Foreign text on one line, without what would move a cursor or colour a terminal."""
    return " ".join(printable(text).split())


def printable(text: str) -> str:
    return text if text.isprintable() else "".join(letter if letter.isprintable() else " " for letter in text)


def counted(n: int, noun: str) -> str:
    return f"{n} {noun}{'s' * (n != 1)}"
