"""A rule without a row in the fidelity matrix does not land."""

import re
from pathlib import Path

import pytest

from lenity.policies import POLICIES
from lenity.skipping import SKIP_RULES

PAGE = (Path(__file__).parents[2] / "docs" / "policies.md").read_text()


@pytest.mark.parametrize("name", [*POLICIES.names(), *SKIP_RULES.names()])
def test_every_rule_has_a_row(name):
    assert re.search(rf"^\| `{name}` \|", PAGE, re.MULTILINE), f"write the row of {name}"
