import json
import subprocess
import sys
from pathlib import Path

import lenity.tasks.math_worker as worker


def ask(*lines: str) -> list[dict]:
    done = subprocess.run(
        [sys.executable, "-P", str(Path(worker.__file__))],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def job(gold: str, text: str) -> str:
    return json.dumps({"gold": gold, "text": text, "seconds": 5})


def test_one_line_in_is_one_line_out():
    said = ask(job("2", r"\boxed{1+1}"), job("2", "nothing"), job("", "x"), job("2", r"$3$"))
    equal, nothing, unreadable, unequal = said
    assert (equal["is_equal"], equal["read"]) == (True, "1+1")
    assert nothing == {"is_equal": False, "read": None}
    assert "cannot read the reference" in unreadable["error"]
    assert (unequal["is_equal"], unequal["read"]) == (False, "3")
