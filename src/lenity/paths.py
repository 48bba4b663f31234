"""Paths as people write them."""

from __future__ import annotations

from pathlib import Path

from lenity.errors import ConfigError


def expanded(name: str | Path) -> Path:
    """Return a path with the home put in for ``~`` or ``~user``. Raises ConfigError without one."""
    try:
        return Path(name).expanduser()
    except RuntimeError:
        raise ConfigError(
            f"Expected a path of a user who has a home here, got {str(name)!r}. Correct the name, "
            f"or write the folder out."
        ) from None
