"""Colours of a report, light and dark, and what matplotlib needs to know of its looks.

A plot is drawn in the light colours, each of which then becomes a CSS variable (see svg), so one
picture serves light and dark. Series differ in marker and dash as well as in colour, and stay apart
under protanopia and deuteranopia (tests/workbench/report/test_theme.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

COLOURS: dict[str, tuple[str, str]] = {
    "paper": ("#fbfaf8", "#15171a"),
    "card": ("#ffffff", "#1d2024"),
    "ink": ("#1d2126", "#e9e6e1"),
    "muted": ("#5d6570", "#a2a8b0"),
    "note": ("#5d6571", "#a2a8b1"),
    "strong": ("#1d2125", "#15171b"),
    "line": ("#dedbd5", "#363a41"),
    "s1": ("#2b78c2", "#5aa2e0"),
    "s2": ("#b93a10", "#e8743a"),
    "s3": ("#0f7a58", "#8cebd0"),
    "s4": ("#5b1a6b", "#d7b0ea"),
    "s5": ("#b8891c", "#f2c85b"),
    "strict": ("#4a515b", "#c3c8cf"),
    "plain": ("#8b919a", "#868d97"),
    "good": ("#10734f", "#5cd3a6"),
    "bad": ("#b3261e", "#ff8f85"),
    "open": ("#8a5a00", "#e9b95c"),
    "relaxed": ("#f0a020", "#975708"),
}
"""CSS variable -> its colour on light and on dark; no two alike on light, see svg.

note is muted type among marks, which gets a halo; strong is type on a strong s1.
"""

STAGES = {"draft": "s5", "target": "s1", "verify": "s3", "commit": "s4"}
"""Colour of each stage of a round."""

MARKS = {
    "o": "M14 2.5a3.5 3.5 0 1 0 .01 0z",
    "s": "M11 3h6v6h-6z",
    "^": "M14 2l4 7h-8z",
    "v": "M14 10l4-7h-8z",
    "<": "M10 6l7-4v8z",
    ">": "M18 6l-7-4v8z",
    "D": "M14 2l4 4-4 4-4-4z",
    "P": "M12.7 2h2.6v2.7H18v2.6h-2.7V10h-2.6V7.3H10V4.7h2.7z",
    "X": "M10 3l1-1 3 3 3-3 1 1-3 3 3 3-1 1-3-3-3 3-1-1 3-3z",
    "h": "M14 2l3.5 2v4L14 10l-3.5-2V4z",
}
"""Markers of matplotlib as paths in the middle of a legend's box of 28 x 12."""
DASHES = {"-": "none", "--": "5 2.5", ":": "1.5 2.5", "-.": "6 2 1.5 2"}
"""Dashes of matplotlib as SVG has them."""

RC: dict[str, object] = {
    "svg.fonttype": "none",  # text stays text: it can be read, searched, and takes the page's font
    "text.parse_math": False,  # a dollar sign in a label is one
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same layout on every machine
    "font.size": 10.5,
    "axes.titlesize": 10.5,
    "axes.titlecolor": COLOURS["muted"][0],
    "axes.titlelocation": "left",
    "axes.titlepad": 9,
    "axes.labelsize": 10.5,
    "axes.labelcolor": COLOURS["muted"][0],
    "axes.edgecolor": COLOURS["muted"][0],
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "text.color": COLOURS["ink"][0],
    "xtick.color": COLOURS["muted"][0],
    "ytick.color": COLOURS["muted"][0],
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "grid.color": COLOURS["line"][0],
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.8,
    "lines.markersize": 6,
    "errorbar.capsize": 0,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "hatch.linewidth": 0.6,
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 0.06,
    "figure.constrained_layout.w_pad": 0.06,
}
"""On top of matplotlib's own defaults, whatever a user's matplotlibrc says."""


@dataclass(frozen=True, slots=True)
class Look:
    """How one arm or curve is drawn, in every plot of a report."""

    name: str
    """CSS variable of its colour"""
    marker: str
    """Of matplotlib"""
    dash: str
    """Of matplotlib"""

    @property
    def colour(self) -> str:
        """Its colour on light."""
        return COLOURS[self.name][0]


SERIES = (
    Look("s1", "o", "-"),
    Look("s2", "s", "-"),
    Look("s3", "^", "-"),
    Look("s4", "D", "-"),
    Look("s5", "v", "-"),
    Look("s1", "P", "--"),
    Look("s2", "X", "--"),
    Look("s3", "<", "--"),
    Look("s4", ">", "--"),
    Look("s5", "h", "--"),
)
STRICT, PLAIN = Look("strict", "o", "--"), Look("plain", "o", ":")
STRICT_AGAIN = Look("strict", "s", "-.")
"""Of the strict that closes a triplet."""
REFERENCES = (
    Look("strict", "s", ":"),
    Look("strict", "^", ":"),
    Look("strict", "D", ":"),
    Look("strict", "v", ":"),
)
"""Of published numbers: grey and dotted."""


def looks_of(names: Iterable[str]) -> dict[str, Look]:
    """Return the look of each name: plain and strict arms grey, others in turn."""
    found: dict[str, Look] = {}
    turn = 0
    for name in dict.fromkeys(names):
        if name == "plain":
            found[name] = PLAIN
        elif name == "strict" or name.startswith("strict-"):
            found[name] = STRICT_AGAIN if STRICT in found.values() else STRICT
        else:
            found[name] = SERIES[turn % len(SERIES)]
            turn += 1
    return found


def reference_looks(names: Iterable[str]) -> dict[str, Look]:
    """Return the looks of published curves, in turn."""
    return {name: REFERENCES[i % len(REFERENCES)] for i, name in enumerate(dict.fromkeys(names))}


def css_variables() -> str:
    """Return the style sheet's first lines: every colour, for light, dark and paper."""
    light, dark = (
        "".join(f"--{name}:{pair[i]};" for name, pair in COLOURS.items()) for i in (0, 1)
    )
    return (
        f":root{{color-scheme:light;{light}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root{{color-scheme:dark;{dark}}}}}\n"
    )
