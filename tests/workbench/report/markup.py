"""A page as elements: what is in it, and whether every element is closed."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "br"}


@dataclass
class Element:
    tag: str
    attrs: dict[str, str]
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def find(self, tag: str | None = None, **attrs: str) -> list[Element]:
        """Every element below with this tag, and these words among its attributes."""
        found = []
        for child in self.children:
            is_it = tag in (None, child.tag) and all(
                value in child.attrs.get(name.rstrip("_"), "").split()
                for name, value in attrs.items()
            )
            found += [child] * is_it + child.find(tag, **attrs)
        return found

    @property
    def full_text(self) -> str:
        return self.text + "".join(child.full_text for child in self.children)


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag, attrs):
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag, attrs):
        self.open[-1].children.append(Element(tag, {n: v or "" for n, v in attrs}))

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        assert self.open[-1].tag == tag, f"<{self.open[-1].tag}> closed by </{tag}>"
        self.open.pop()

    def handle_data(self, data):
        # text in the place where it stands, so that full_text keeps the order
        self.open[-1].children.append(Element("#text", {}, data))


def parsed(page: str) -> Element:
    """The page's elements; fails where one is not closed, or closed by another's end."""
    parser = _Parser()
    parser.feed(page)
    parser.close()
    assert parser.open == [parser.root], [element.tag for element in parser.open]
    return parser.root
