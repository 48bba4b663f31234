"""The full report, drawn once for all tests: its dozen plots take a second."""

import pytest

from lenity.workbench.report.page import html
from lenity.workbench.report.sections import Section, sections_of
from tests.workbench.report.markup import Element, parsed
from tests.workbench.report.sample import report


@pytest.fixture(scope="session")
def sections() -> list[Section]:
    """The sections of the full report."""
    return sections_of(report())


@pytest.fixture(scope="session")
def page() -> str:
    """The full report."""
    return html(report())


@pytest.fixture(scope="session")
def elements(page: str) -> Element:
    """The full report's elements."""
    return parsed(page)
