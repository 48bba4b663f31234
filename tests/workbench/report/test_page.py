"""The page: whole, self-contained, harmless whatever a model says, and the same every time."""

import re
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files

import pytest

from lenity.workbench.intervals import Interval
from lenity.workbench.report.axes import brief
from lenity.workbench.report.data import Disclosure, Missing, VerdictCard
from lenity.workbench.report.page import Cell, cells, html, minus, strip
from lenity.workbench.report.token_data import TokenDetail, TokenSample, TokenText
from lenity.workbench.tables import GAIN, Column, Table
from tests.workbench.report.markup import parsed
from tests.workbench.report.sample import bare, interval, report, verdict

EVIL = "</script><script>alert(1)</script>\"'><img src=http://evil.example/x onerror=alert(1)>"


def test_the_same_document_gives_the_same_page(page):
    again = type(report()).model_validate_json(report().model_dump_json())
    assert html(again) == page


def test_every_part_is_there(elements):
    ids = [element.attrs["id"] for element in elements.find() if "id" in element.attrs]
    assert len(set(ids)) == len(ids)
    links = [link.attrs["href"].removeprefix("#") for link in elements.find("nav")[0].find("a")]
    assert set(links) <= set(ids)
    assert len(elements.find("figure")) == 13
    assert len(elements.find("svg", role="img")) == 13


def test_every_plot_has_a_name_and_a_caption(elements):
    for figure in elements.find("figure"):
        title = figure.find("h3")[0].full_text
        told = figure.find("p", class_="caption")[0].full_text
        assert title
        assert "SmolLM2-135M-Instruct, eagle3:model=demo, gamma 7" in told
        assert "2 cores of an Intel Xeon, float32" in told


def test_nothing_is_asked_of_a_network(page, elements):
    for element in elements.find():
        for name in ("src", "href", "action", "data", "srcset", "poster"):
            value = element.attrs.get(name, "#")
            assert value.startswith(("#", "data:")), (element.tag, name, value)
    assert not re.search(r"@import|url\((?!#)|https?://", page)
    assert [script.attrs for script in elements.find("script")] == [{}]


def test_only_the_pages_own_script_may_run(elements):
    script = elements.find("script")[0].full_text
    policy = elements.find("meta", **{"http-equiv": "Content-Security-Policy"})[0].attrs["content"]
    digest = b64encode(sha256(script.encode()).digest()).decode()
    assert policy.split("; ")[0] == "default-src 'none'"
    assert f"script-src 'sha256-{digest}'" in policy


def test_words_of_a_model_stay_words(page):
    assert "alert" in page  # a token of the sample
    assert page.count("<script") == 1


def evil_report():
    text = TokenText(
        arm=EVIL,
        pieces=(EVIL, "b"),
        kinds="xr",
        note=EVIL,
        details=(TokenDetail(position=0, regret=1.0, rank=1, choice=EVIL),),
    )
    sample = TokenSample(task=EVIL, item_id=EVIL, prompt=EVIL, texts=(text,), note=EVIL)
    table = Table(name="t", title=EVIL, columns=(Column(key="k", label=EVIL),), rows=((EVIL,),))
    return report(
        title=EVIL, summary=EVIL, operating_point={EVIL: EVIL}, samples=(sample,), tables=(table,),
        missing=(Missing(what=EVIL, why=EVIL),),
        verdict=verdict().model_copy(update={"words": EVIL, "needed": EVIL}),
        disclosure=Disclosure(notes=(EVIL,), not_comparable=(EVIL,), failed_samples=(EVIL,)),
        frontier=None, acceptance=None, regret=None, opportunity=None, sweeps=(), reliability=(),
        predicted=(),
    )  # fmt: skip


def test_every_text_is_escaped():
    page = html(evil_report())
    root = parsed(page)
    assert len(root.find("script")) == 1
    assert not root.find("img")
    assert not [element for element in root.find() if "onerror" in element.attrs]
    token = root.find("span", **{"data-r": "1.000"})[0]
    assert token.full_text == token.attrs["data-c"] == EVIL


def test_a_plots_labels_are_escaped():
    latency = report().latency
    arm = latency.arms[0].model_copy(update={"arm": EVIL})
    root = parsed(html(bare(latency=latency.model_copy(update={"arms": (arm,)}))))
    assert not root.find("img")
    assert any(text.full_text == brief(EVIL) for text in root.find("text"))


def test_what_is_absent_is_not_drawn():
    root = parsed(html(bare()))
    assert not root.find("figure")
    assert not root.find("nav")
    assert not root.find("table")
    assert [heading.full_text for heading in root.find("h2")] == ["Disclosure"]
    assert "Nothing was recorded" in root.find("section")[0].full_text
    assert not root.find(id="pop")


def test_what_was_asked_for_and_is_missing_is_said():
    root = parsed(html(bare(missing=(Missing(what="mbpp@1", why="no code may run here"),))))
    aside = root.find("aside", class_="missing")[0]
    assert [d.full_text for d in aside.find("dt") + aside.find("dd")] == [
        "mbpp@1",
        "no code may run here",
    ]


def test_the_card_tells_verdict_gain_quality_margin_and_gates(elements):
    card = elements.find("section", class_="verdict")[0]
    text = " ".join(card.full_text.split())
    for told in (
        "inconclusive",
        "+7.8 %",
        "+6.7 to +8.9 % over prompts",
        "+7.2 to +8.4 % over 4 triplets",
        "−0.12 pp",
        "−1.47 to +1.23 pp on 256 prompts",
        "margin −1.00 pp, stated beforehand",
        "642 prompts show a margin",
    ):
        assert told in text
    gates = [gate.attrs["class"] for gate in card.find("ul", class_="gates")[0].find("li")]
    assert gates == ["undecided", *["holds"] * 5]


@pytest.mark.parametrize(
    ("outcome", "tone"),
    [
        ("accepted", "good"), ("chosen", "good"), ("rejected", "bad"),
        ("inconclusive", "open"), ("off", "open"),
    ],
)  # fmt: skip
def test_the_cards_colour_follows_its_outcome(outcome, tone):
    card = VerdictCard(outcome=outcome, words="w")
    root = parsed(html(bare(verdict=card)))
    assert root.find("section", class_="verdict")[0].attrs["class"] == f"verdict {tone}"
    assert not root.find("div", class_="numbers")
    forced = bare(verdict=card, disclosure=Disclosure(not_comparable=("dtype",)))
    assert (
        parsed(html(forced)).find("section", class_="verdict")[0].attrs["class"] == "verdict open"
    )


def test_what_was_forced_is_marked():
    root = parsed(html(bare(disclosure=Disclosure(not_comparable=("template hash: a, b",)))))
    banner = root.find("aside", class_="banner")[0]
    assert banner.find("h2")[0].full_text == "Not comparable"
    assert banner.find("li")[0].full_text == "template hash: a, b"
    assert not parsed(html(bare())).find("aside")


def test_a_repeated_measure_stands_in_for_one_over_prompts():
    card = VerdictCard(outcome="accepted", words="w", gain_over_repeats=interval(0.05, 0.01))
    text = parsed(html(bare(verdict=card))).find("section", class_="verdict")[0].full_text
    assert "+4.0 to +6.0 % over repeats" in text
    assert "over prompts" not in text


def test_tokens_have_their_kind_and_their_price(elements):
    answers = elements.find("p", class_="tokens")
    tokens = answers[1].find("span", class_="t")
    assert "".join(token.full_text for token in tokens[:4]) == "To find the number"
    relaxed = answers[1].find("span", class_="x")
    assert [token.attrs["data-r"] for token in relaxed] == ["0.125", "2.375", "1.000"]
    assert relaxed[1].attrs["style"] == "--r:1.0"
    assert (relaxed[1].attrs["data-k"], relaxed[1].attrs["data-c"]) == ("2", "Each")
    assert [token.attrs["tabindex"] for token in tokens[:3]] == ["0", "-1", "-1"]


def test_every_kind_of_token_has_a_style_of_its_own():
    style = files("lenity.workbench.report").joinpath("assets/report.css").read_text()
    rules = dict(re.findall(r"^\.t\.([xrbsp]) \{([^}]*)\}", style, re.MULTILINE))
    assert set(rules) == set("xrbsp")
    lines = [re.search(r"dashed|dotted|double|inset", rules[kind])[0] for kind in "rbsx"]
    assert len(set(lines)) == 4  # told apart without colour


def test_limits_stand_apart_in_cells(elements):
    table = elements.find("div", class_="tabular")[0]
    cell = table.find("td")[2]
    assert cell.find("span", class_="limits")[0].full_text == "+6.3 to +9.9"
    made = Table(
        name="t", title="T",
        columns=(Column(key="a", label="A", unit=GAIN), Column(key="b", label="B")),
        rows=((-0.25, "a-1"), (interval(-1, 1), None)),
    )  # fmt: skip
    assert cells(made) == [
        [Cell(text="−25.0", is_number=True), Cell(text="a-1", is_number=False)],
        [
            Cell(text="−100.0", limits="−200.0 to 0.0", is_number=True),
            Cell(text="–", is_number=False),
        ],
    ]
    bare_interval = Table(
        name="t", title="T", columns=(Column(key="a", label="A"),), rows=((interval(1, 1),),)
    )
    assert cells(bare_interval)[0][0].text == "1.00 (0.00 to 2.00)"


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        ("-0.5 to -1", "−0.5 to −1"),
        ("(-1.47)", "(−1.47)"),
        ("SmolLM2-135M", "SmolLM2-135M"),
        ("2026-02-03", "2026-02-03"),
        ("--prompts", "--prompts"),
        ("3-4", "3-4"),
    ],
)
def test_minus_signs_are_for_numbers(text, drawn):
    assert minus(text) == drawn


def test_the_strip_holds_zero_and_margin():
    places = strip(interval(0.0, 0.02), margin=0.01)
    assert places.zero == places.estimate == 50
    assert 0 < places.low < places.margin < places.zero < places.high < 100
    assert places.margin == pytest.approx((places.low + places.zero) / 2, abs=0.02)
    assert strip(interval(0.05, 0.01)).margin is None


def test_a_strip_of_nothing_is_in_the_middle():
    assert strip(Interval(estimate=0, low=0, high=0, method="m", num_units=2)).zero == 50


def test_numbers_of_plots_are_in_the_page(elements):
    latency = next(f for f in elements.find("figure") if f.attrs["id"] == "latency")
    assert "26.20" in latency.find("table")[0].full_text
