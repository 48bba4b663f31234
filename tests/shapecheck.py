"""The type checker behind ``--jaxtyping-packages``: beartype, which shall not stumble over Self.

jaxtyping hands it functions one by one, and beartype refuses ``typing.Self`` outside a decorated
class. What mentions Self goes unchecked at run time; mypy checks it.
"""

import re
from collections.abc import Callable
from typing import Any, Self, get_args

from beartype import beartype


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, checking its arguments and its result at every call."""
    hints = function.__annotations__
    function.__annotations__ = {n: Any if _mentions_self(h) else h for n, h in hints.items()}
    return beartype(function)


def _mentions_self(hint: object) -> bool:
    if isinstance(hint, str):  # a name that does not exist yet, such as the class being defined
        return re.search(r"\bSelf\b", hint) is not None
    return hint is Self or any(map(_mentions_self, get_args(hint)))
