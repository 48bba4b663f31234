"""A figure inside a page: deterministic, named, coloured by the page."""

import re

import matplotlib as mpl

from lenity.workbench.report.svg import drawn
from lenity.workbench.report.theme import COLOURS
from tests.workbench.report.markup import parsed


def draw(axes):
    axes.plot([1, 2], [3, 4], marker="o", color=COLOURS["s1"][0])
    axes.set_title("a < b & $c$ #1d2126 <script>")
    axes.grid()


def picture(slug="one", **more):
    return drawn(draw, slug=slug, title="T <b>", description="D & d", **more)


def test_the_same_data_gives_the_same_bytes_whatever_the_user_set():
    with mpl.rc_context({"lines.linewidth": 9, "font.size": 30, "svg.fonttype": "path"}):
        mine = picture()
    assert mine == picture()


def test_it_is_an_image_with_a_name():
    svg = parsed(picture()).find("svg")[0]
    assert svg.attrs["role"] == "img"
    names = {child.attrs.get("id"): child.full_text for child in svg.children}
    assert names[svg.attrs["aria-labelledby"]] == "T <b>"
    assert names[svg.attrs["aria-describedby"]] == "D & d"


def test_its_width_is_the_columns():
    svg = parsed(picture(height=2.0)).find("svg")[0]
    assert svg.attrs["viewbox"] == "0 0 324 144"
    assert not {"width", "height"} & set(svg.attrs)


def test_its_text_is_text_in_the_pages_font():
    texts = parsed(picture()).find("text")
    assert "a < b & $c$ #1d2126 <script>" in [text.full_text for text in texts]
    assert "font-family" not in picture()
    assert all("font-size: 10.5px" in text.attrs["style"] for text in texts)


def test_its_colours_are_the_pages():
    styles = re.findall(r'style="([^"]*)"', picture())
    assert any("stroke: var(--s1)" in style for style in styles)
    assert not [style for style in styles if "#" in re.sub(r"url\(#[^)]*\)", "", style)]


def test_two_pictures_in_a_page_share_no_id():
    ids = [set(re.findall(r' id="([^"]*)"', picture(slug))) for slug in ("one", "two")]
    assert not ids[0] & ids[1]
    for slug, own in zip(("one", "two"), ids, strict=True):
        used = set(re.findall(r'url\(#([^)]*)\)|href="#([^"]*)"', picture(slug)))
        assert {name for pair in used for name in pair if name} <= own


def test_nothing_of_it_names_a_date_or_an_address():
    assert not re.search(r"http|<metadata|<style|<!--|<\?xml|20\d\d-", picture())


def test_a_script_that_the_font_lacks_is_no_error():
    def chinese(axes):
        axes.set_title("你好")

    assert "你好" in drawn(chinese, slug="s", title="t", description="d")
