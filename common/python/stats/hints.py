"""What to do about a reason that says what happened and not what helps."""

import re

HINTS = (
    (
        r"no answer within.*rank \d",
        "all ranks must call the same collectives in the same order; their logs have the stacks",
    ),
    ("no answer within", "its log ends with the stack; a step that needs longer needs --timeout-multiplier"),
    (
        "illegal memory access|misaligned address|device-side assert|unspecified launch failure",
        "scripts/sanitize.sh on this pair names the kernel and the line",
    ),
    ("out of memory|can't allocate memory|MemoryError", "declare what it needs: needs(memory_gib=, host_memory_gib=)"),
    ("killed by SIGKILL", "so ends a process when host memory runs out: see dmesg"),
    ("killed by SIG", "its log ends with the stack"),
    ("exited with code", "a step returns: it must not end its process"),
    ("ModuleNotFoundError", "declare what is not always there: requires = needs(modules=[...])"),
    ("Too many open files", "close in a step what it opens"),
    ("on inputs that it has not seen", "only what depends on Workload.frozen may be worked out once and kept"),
    ("disturbs this session", "run it again without other work on this machine, or with a larger --budget"),
    ("NaN or infinity", "outputs are filled with NaN before each proof: one that is not written keeps it"),
)


def hint(reason: str | None) -> str | None:
    """What would help, where that is known of such a reason."""
    return next((text for pattern, text in HINTS if re.search(pattern, reason or "")), None)
