"""Compares answers with math-verify, in a process of its own: one JSON line in, one out.

Run as a script by ``math_answers``, which ends the process when a comparison does not end: a power
tower keeps Python inside one C call, where the alarm math-verify sets cannot reach it.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

MEMORY_BYTES = 3 << 30
"""Address space of the process; sympy and its tables take about a sixth of it."""


def compare(gold: str, text: str, seconds: int) -> dict[str, Any]:
    """Return whether ``text`` ends with what equals ``gold``, and what was read in it."""
    from math_verify import parse, verify

    wanted = parse(f"\\boxed{{{gold}}}", parsing_timeout=seconds)
    read = parse(text, parsing_timeout=seconds)
    if not wanted:
        return {"error": f"math-verify cannot read the reference {gold!r}"}
    if not read:
        return {"is_equal": False, "read": None}
    # the last entry is the text that was read
    return {
        "is_equal": bool(verify(wanted, read, timeout_seconds=seconds)),
        "read": str(read[-1]),
    }


def main() -> None:
    """Answer lines until there are no more."""
    _limit_memory()
    logging.disable(logging.WARNING)
    # what libraries print must not stand between the answers
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        job = json.loads(line)
        try:
            answer = compare(job["gold"], job["text"], job["seconds"])
        except (Exception, RecursionError) as error:
            answer = {"is_equal": False, "read": None, "failed": f"{type(error).__name__}"}
        print(json.dumps(answer), file=answers, flush=True)


def _limit_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    except (ImportError, ValueError, OSError):
        return  # Windows has no limits, macOS not this one; the time limit remains


if __name__ == "__main__":
    main()
