"""The end of the demo; with the demo model it runs in tests/test_demo.py and `make demo`."""

from lenity.cli.demo_study import DRAFTER, RULES, TASKS
from lenity.drafters import drafter
from lenity.policies import policy
from lenity.tasks import task


def test_all_it_names_can_be_built():
    assert drafter(DRAFTER).type == "eagle3"
    assert len({policy(rule).spec for rule in RULES}) == len(RULES)
    assert [task(name).has_scorer for name in TASKS] == [True, False]
