"""The report where people open it: a real browser, from a file, on a desk and on a phone."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lenity.workbench.report.data import Disclosure, Missing
from lenity.workbench.report.write import write_report
from tests.workbench.report.sample import bare, report, samples

pytestmark = pytest.mark.browser

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
QUIET = (
    "--no-sandbox",  # Chromium refuses its sandbox to root; the page is our own
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
DESK = {"viewport": {"width": 1280, "height": 800}}
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
SCREENS = pytest.mark.parametrize("screen", [DESK, PHONE], ids=["desk", "phone"])
SCHEMES = pytest.mark.parametrize("scheme", ["light", "dark"])


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium with a profile of its own, gone afterwards."""
    path = os.environ.get("LENITY_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no Chromium: none of {', '.join(NAMES)} is on the path")
    api = pytest.importorskip("playwright.sync_api", reason="needs the extra browser")
    with api.sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=path, args=list(QUIET))
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    """The full report, written once."""
    return write_report(report(), tmp_path_factory.mktemp("report"))


@contextmanager
def opened(browser, file: Path, **screen) -> Iterator[object]:
    """The page in a window; afterwards, nothing went wrong and nothing else was asked for."""
    context = browser.new_context(**screen)
    page = context.new_page()
    troubles, requests = [], []
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(file.as_uri())
    yield page
    assert troubles == []
    assert requests == [file.as_uri()]
    context.close()


def overflow(page) -> list[str]:
    """Elements that stand out of the window on the right, unless they scroll by themselves."""
    return page.evaluate(
        """() => [...document.querySelectorAll("main *")]
        .filter((e) => !e.closest(".scroll") && e.getBoundingClientRect().right > innerWidth + 0.5)
        .map((e) => e.outerHTML.slice(0, 120))"""
    )


@SCHEMES
@SCREENS
def test_it_loads_whole_and_quietly(browser, file, screen, scheme):
    with opened(browser, file, color_scheme=scheme, **screen) as page:
        plots = page.locator("svg.plot")
        assert plots.count() == 13
        for i in range(plots.count()):
            box = plots.nth(i).bounding_box()
            assert box["width"] > 280
            assert box["height"] > 60
        assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
        page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        assert overflow(page) == []


def test_light_and_dark_differ_down_to_the_plots(browser, file):
    colours = {}
    for scheme in ("light", "dark"):
        with opened(browser, file, color_scheme=scheme, **DESK) as page:
            colours[scheme] = page.evaluate(
                """() => ["body", "#acceptance .plot text", "#latency .plot path[style*='--s1']"]
                .map((s) => getComputedStyle(document.querySelector(s)))
                .flatMap((style) => [style.backgroundColor, style.fill])"""
            )
    light, dark = colours["light"], colours["dark"]
    assert light[0] == "rgb(251, 250, 248)"
    assert dark[0] == "rgb(21, 23, 26)"
    assert light[3] != dark[3]
    assert light[5] != dark[5]


def test_type_in_plots_is_readable_on_a_phone(browser, file):
    with opened(browser, file, **PHONE) as page:
        sizes = page.evaluate(
            """() => [...document.querySelectorAll(".plot text")]
            .map((t) => parseFloat(getComputedStyle(t).fontSize) * t.getScreenCTM().a)"""
        )
    assert min(sizes) > 9


def test_no_text_of_a_plot_is_cut_off(browser, file):
    with opened(browser, file, **DESK) as page:
        outside = page.evaluate(
            """() => [...document.querySelectorAll(".plot text")].filter((t) => {
                const text = t.getBoundingClientRect();
                const plot = t.closest("svg").getBoundingClientRect();
                return text.left < plot.left - 1 || text.right > plot.right + 1
                    || text.top < plot.top - 1 || text.bottom > plot.bottom + 1;
            }).map((t) => t.textContent)"""
        )
    assert outside == []


RELAXED = ("relaxed · token 22", "token A", "regret 2.375 nats", "rank 2", "target’s choice Each")


def test_pointing_at_a_token_tells_its_price(browser, file):
    with opened(browser, file, **DESK) as page:
        pop = page.locator("#pop")
        assert pop.is_hidden()
        page.locator(".tokens .t.x").nth(1).hover()
        assert pop.is_visible()
        assert pop.inner_text().splitlines() == list(RELAXED)
        box = pop.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 1280
        page.locator("h1").scroll_into_view_if_needed()
        page.locator("h1").hover()
        assert pop.is_hidden()
        page.locator(".tokens .t.r").first.hover()
        assert pop.inner_text().splitlines()[0].startswith("recovered")


def test_tapping_a_token_tells_its_price(browser, file):
    with opened(browser, file, **PHONE) as page:
        pop = page.locator("#pop")
        finger = {"pointerType": "touch", "bubbles": True}  # on its way to scroll, say
        page.locator(".tokens .t.x").nth(1).dispatch_event("pointerover", finger)
        assert pop.is_hidden()
        page.locator(".tokens .t.x").nth(1).tap()
        assert pop.inner_text().splitlines() == list(RELAXED)
        box = pop.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
        assert box["y"] + box["height"] <= 844
        page.locator("h1").tap()
        assert pop.is_hidden()


def test_keys_walk_from_token_to_token(browser, file):
    with opened(browser, file, **DESK) as page:
        page.locator(".tokens").nth(1).locator(".t").first.focus()
        for _ in range(6):
            page.keyboard.press("ArrowRight")
        pop = page.locator("#pop")
        assert pop.inner_text().splitlines()[:3] == [
            "relaxed · token 7",
            "token ,",
            "regret 0.125 nats",
        ]
        described = page.evaluate("document.activeElement.getAttribute('aria-describedby')")
        assert described == "pop"
        page.keyboard.press("ArrowLeft")
        assert pop.inner_text().startswith("accepted · token 6")
        page.keyboard.press("Escape")
        assert pop.is_hidden()
        stops = page.locator(".tokens").nth(1).locator("[tabindex='0']")
        assert stops.count() == 1  # one stop for the tab key, wherever the walk went


def test_a_token_that_is_a_script_is_only_text(browser, tmp_path):
    (sample, _) = samples()
    evil = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"
    text = sample.texts[0]
    text = text.model_copy(update={"pieces": (evil, *text.pieces[1:])})
    sample = sample.model_copy(update={"texts": (text,), "prompt": evil})
    file = write_report(bare(samples=(sample,)), tmp_path)
    with opened(browser, file, **DESK) as page:
        page.locator(".tokens .t").first.hover()
        assert evil in page.locator("#pop").inner_text()
        assert page.title() == "Bare"


def test_paper_shows_what_cannot_be_pointed_at(browser, file):
    with opened(browser, file, color_scheme="dark", **DESK) as page:
        page.emulate_media(media="print", color_scheme="dark")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator(".sample-card:not([open]), .answer details:not([open])").count() == 0
        ink = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--ink')")
        assert ink == "#1d2126"
        assert page.locator("nav").is_hidden()
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.locator(".sample-card:not([open])").count() == 1


@SCREENS
def test_a_report_of_nothing_but_words_loads(browser, tmp_path, screen):
    gap = Missing(what="a_task_with_a_name_longer_than_a_phone_is_wide@1" * 2, why="x" * 300)
    data = bare(
        title="asd:budget=8,gate=0.25,block_cap=2," * 4,
        missing=(gap,),
        operating_point={"policy": "asd:budget=8,gate=0.25,block_cap=2," * 4},
        disclosure=Disclosure(not_comparable=("y" * 300,)),
    )
    with opened(browser, write_report(data, tmp_path), **screen) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
        assert overflow(page) == []
        assert page.locator("#pop").count() == 0
