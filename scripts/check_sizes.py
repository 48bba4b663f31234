"""Report source files over 400 lines and functions over 60; exit 1 if there is one.

What does not fit on a few screens is not read. Lines are counted as they stand, docstrings and
decorators included.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60


def oversized(file: Path) -> Iterator[str]:
    """Yield one line for the file, and one for each of its functions, that is too long."""
    text = file.read_text(encoding="utf-8")
    num_lines = len(text.splitlines())
    if num_lines > MAX_FILE_LINES:
        yield f"{file}: {num_lines} lines, at most {MAX_FILE_LINES}. Give a part a home of its own."
    for node in ast.walk(ast.parse(text, str(file))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            num_lines = (node.end_lineno or node.lineno) - first + 1
            if num_lines > MAX_FUNCTION_LINES:
                yield (
                    f"{file}:{first}: {node.name} has {num_lines} lines, at most "
                    f"{MAX_FUNCTION_LINES}. Name a part of it."
                )


def main() -> int:
    """Check every Python file below the folders given (default: src)."""
    folders = sys.argv[1:] or ["src"]
    findings = [
        line for top in folders for f in sorted(Path(top).rglob("*.py")) for line in oversized(f)
    ]
    print("\n".join(findings) or f"sizes: every file and function in {', '.join(folders)} fits")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
