"""Colours: told apart by everyone, readable on both grounds, one variable each."""

import itertools
import re

import numpy as np
import pytest

from lenity.workbench.report.theme import (
    COLOURS,
    DASHES,
    MARKS,
    REFERENCES,
    SERIES,
    STRICT,
    STRICT_AGAIN,
    css_variables,
    looks_of,
    reference_looks,
)

SIGHT = {
    "full": np.eye(3),
    # severity 1, Machado, Oliveira and Fernandes 2009
    "protan": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deutan": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
}
GROUNDS = pytest.mark.parametrize("ground", [0, 1], ids=["light", "dark"])


def linear(colour):
    value = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def oklab(rgb):
    """Ottosson 2020."""
    to_lms = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    to_lab = np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
    )
    return to_lab @ np.cbrt(to_lms @ rgb.clip(0, 1))


def contrast(one, other):
    """WCAG 2."""
    dark, light = sorted(linear(c) @ [0.2126, 0.7152, 0.0722] for c in (one, other))
    return (light + 0.05) / (dark + 0.05)


def mixed(over, under, share):
    pairs = ((int(c[i : i + 2], 16) for c in (over, under)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(a * share + b * (1 - share)):02x}" for a, b in pairs)


@GROUNDS
@pytest.mark.parametrize("sight", SIGHT)
def test_series_stay_apart_whatever_the_eyes(sight, ground):
    labs = [oklab(SIGHT[sight] @ linear(COLOURS[f"s{i}"][ground])) for i in range(1, 6)]
    apart = min(np.linalg.norm(a - b) for a, b in itertools.combinations(labs, 2))
    assert apart > 0.075


@GROUNDS
def test_type_and_marks_stand_out_from_their_ground(ground):
    here = {name: pair[ground] for name, pair in COLOURS.items()}
    for name in ("ink", "muted", "note", "good", "bad", "open"):
        assert min(contrast(here[name], here[on]) for on in ("paper", "card")) > 4.5, name
    for name in ("s1", "s2", "s3", "s4", "s5", "strict", "plain"):
        assert contrast(here[name], here["card"]) > 3, name


@GROUNDS
@pytest.mark.parametrize("share", [0.22, 0.6, 1.0])
def test_type_on_a_relaxed_token_is_readable(share, ground):
    here = {name: pair[ground] for name, pair in COLOURS.items()}
    assert contrast(here["ink"], mixed(here["relaxed"], here["card"], share)) > 4.5


def test_each_light_colour_stands_for_one_variable():
    light = [pair[0] for pair in COLOURS.values()]
    assert len(set(light)) == len(light)
    assert all(re.fullmatch("#[0-9a-f]{6}", c) for pair in COLOURS.values() for c in pair)


def test_paper_is_light_whatever_the_screen():
    light, dark = css_variables().strip().splitlines()
    assert light.startswith(":root{color-scheme:light;--paper:#fbfaf8;")
    assert dark.startswith("@media screen and (prefers-color-scheme:dark)")
    assert "--paper:#15171a" in dark


def test_strict_and_plain_are_grey_and_others_take_turns():
    looks = looks_of(["strict-a", "relaxed", "plain", "strict-b", "other", "relaxed"])
    assert list(looks) == ["strict-a", "relaxed", "plain", "strict-b", "other"]
    assert (looks["strict-a"], looks["strict-b"]) == (STRICT, STRICT_AGAIN)
    assert (looks["relaxed"], looks["other"]) == SERIES[:2]
    assert looks_of(["strictly"])["strictly"] == SERIES[0]


def test_curves_differ_in_more_than_colour():
    assert len({(look.marker, look.dash) for look in SERIES}) == len(SERIES)
    assert len({(look.marker, look.dash) for look in REFERENCES}) == len(REFERENCES)
    assert set(reference_looks(["a", "b"]).values()) == set(REFERENCES[:2])


def test_a_legend_can_draw_every_look():
    looks = {*SERIES, *REFERENCES, STRICT, STRICT_AGAIN, *looks_of(["plain"]).values()}
    assert {look.marker for look in looks} <= set(MARKS)
    assert {look.dash for look in looks} <= set(DASHES)
