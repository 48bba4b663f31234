"""``--operating-point FILE``: a frozen choice in place of the options it decides."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from lenity.cli.options import DEMO_MODEL
from lenity.cli.terminal import err, working
from lenity.errors import ConfigError

if TYPE_CHECKING:
    from lenity.engine.decode import Decoder
    from lenity.workbench.operating_point import OperatingPoint

PointFile = Annotated[
    Path | None,
    typer.Option(
        "--operating-point",
        help="File of `lenity tune`: model, drafter, policy, gamma and dtype in one",
    ),
]


DECIDED = {
    "model": DEMO_MODEL,
    "drafter": "none",
    "policy": "strict",
    "skip": "none",
    "gamma": None,
    "dtype": None,
}
"""Options that a point decides, and what they are where nobody gave them."""


def read_point(file: Path | None, **options: str | int | None) -> OperatingPoint | None:
    """Return the operating point in ``file``, if one is named.

    ``options`` are the command's, of DECIDED. Raises ConfigError for one that was given as well.
    """
    if file is None:
        return None
    from lenity.workbench.operating_point import load_operating_point

    given = [f"--{name}" for name, value in options.items() if value != DECIDED[name]]
    if given:
        raise ConfigError(
            f"Expected nothing beside --operating-point that it decides, got {', '.join(given)}. "
            f"Leave it out, or leave the operating point out."
        )
    return load_operating_point(file)


def point_decoder(point: OperatingPoint, prompt: Any, device: str | None) -> Decoder:
    """Return a decoder at the point, and say where its verdict does not hold for such a prompt.

    Raises ModelMismatchError where target or drafter are others than the point's.
    """
    from lenity.tasks.base import Item
    from lenity.tasks.chat import render
    from lenity.workbench.point_decoder import decoder_at

    with working(f"Loading {point.target.name}"):
        decoder = decoder_at(point, device=device)
    asked = {"prompt": prompt} if isinstance(prompt, str) else {"messages": tuple(prompt)}
    if decoder.target.tokenizer is not None:
        rendered = render(Item(id="prompt", **asked), decoder.target.tokenizer)
        _warn(point, point.differences(template_hash=rendered.template_hash))
    return decoder


def _warn(point: OperatingPoint, found: tuple[str, ...]) -> None:
    if not found:
        return
    verdict = f" Its verdict, {point.audit.verdict!r}, does not hold here." if point.audit else ""
    text = (
        f"The operating point was made for prompts rendered in another way ({'; '.join(found)})."
        f"{verdict} It may be --chat that is missing."
    )
    err().print(Text(text, style="yellow"), soft_wrap=True)
