"""A matplotlib figure as SVG inside a page: same bytes for the same data, colours from the page.

What matplotlib writes is a file; inside a page it needs ids of its own, a name for those who cannot
see it, the page's font, and colours that follow light and dark. The size is that of a phone's
column, in which type of 10.5 units is readable; wider columns scale it up.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from html import escape
from io import BytesIO
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lenity.workbench.report.theme import COLOURS, RC

WIDTH = 4.5
"""Inches, of 72 units each: the column of a phone, 324 units."""
HEIGHT = 2.9

_VARIABLES = {pair[0]: f"var(--{name})" for name, pair in COLOURS.items()}


def drawn(
    draw: Callable[[Axes], None],
    *,
    slug: str,
    title: str,
    description: str,
    height: float = HEIGHT,
) -> str:
    """Return an <svg> element with what ``draw`` puts on its axes.

    ``slug`` makes its ids unique within the page; ``title`` and ``description`` are read aloud in
    its place. ``height`` in inches.
    """
    looks: Any = {key: v for key, v in mpl.rcParamsDefault.items() if "backend" not in key}
    looks |= {**RC, "svg.hashsalt": slug}
    with mpl.rc_context(looks), warnings.catch_warnings():
        # a label in a script DejaVu lacks: the page's fonts have it, only its width is a guess
        warnings.filterwarnings("ignore", r"Glyph .* missing from font", UserWarning)
        figure = Figure(figsize=(WIDTH, height))
        draw(figure.add_subplot())
        out = BytesIO()
        nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(out, format="svg", metadata=nothing)
    return _inlined(out.getvalue().decode(), slug, title, description)


def _inlined(file: str, slug: str, title: str, description: str) -> str:
    """Return the file's <svg> element as part of a page."""
    head, _, body = file[file.index("<svg") :].rstrip().partition(">")
    box = re.search(r'viewBox="[^"]*"', head)
    for dropped in (
        r"<metadata>.*?</metadata>",
        r"<style.*?</style>",  # it would hold for the whole page; the page's own says the same
        r"<!--.*?-->",  # each text once more
        r' transform="rotate\(-0 [^"]*"',
    ):
        body = re.sub(dropped, "", body, flags=re.DOTALL)
    body = _with_own_ids(body.replace("xlink:href", "href"), slug)
    body = re.sub(r'style="([^"]*)"', _restyled, body)
    named = (
        f'<title id="{slug}-title">{escape(title)}</title>'
        f'<desc id="{slug}-desc">{escape(description)}</desc>'
    )
    return (
        f'<svg class="plot" {box[0] if box else ""} role="img" '
        f'aria-labelledby="{slug}-title" aria-describedby="{slug}-desc">{named}'
        + re.sub(r"\s*\n\s*", " ", body)
    )


def _restyled(style: re.Match[str]) -> str:
    """Give a style attribute the page's colours and font."""
    # laid out in DejaVu Sans, which is wider than what pages are set in: nothing will touch
    text = re.sub(r"font-family:[^;]*;?\s*", "", style[0])
    text = re.sub(r"font: ((?:\w+ )*?)([\d.]+px) [^;\"]*", r"font-size: \2", text)
    return re.sub(r"#[0-9a-f]{6}\b", lambda m: _VARIABLES.get(m[0], m[0]), text)


def _with_own_ids(body: str, slug: str) -> str:
    """Prefix ids that something refers to; drop the others, which would stand twice in a page."""
    used = set(re.findall(r"url\(#([^)]+)\)|href=\"#([^\"]+)\"", body))
    names = {name for pair in used for name in pair if name}

    def renamed(match: re.Match[str]) -> str:
        return f' id="{slug}-{match[1]}"' if match[1] in names else ""

    body = re.sub(r'\sid="([^"]*)"', renamed, body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{slug}-\1)", body)
    return re.sub(r'href="#([^"]+)"', rf'href="#{slug}-\1"', body)
