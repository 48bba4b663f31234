from lenity.tasks import task
from lenity.tasks.own_prompts import FAMILIES
from lenity.training import prompts as training

ITEMS = task("own_prompts:per_family=400").load()


def test_every_family_has_so_many_different_prompts_without_gaps():
    assert len(ITEMS) == 400 * len(FAMILIES)
    assert len({item.split_hash for item in ITEMS}) == len(ITEMS)
    assert not any("{" in item.prompt or "}" in item.prompt for item in ITEMS)
    assert {item.family for item in ITEMS} == set(FAMILIES)
    assert not task("own_prompts").has_scorer


def test_no_prompt_is_one_drafters_are_trained_on():
    trained = {
        training.prompt(family, index) for family in training.FAMILIES for index in range(2000)
    }
    assert not trained & {item.about for item in ITEMS}


def test_prompts_are_a_function_of_family_seed_and_index():
    few = task("own_prompts:per_family=5,families=code+rewrite")
    known = {item.id: item for item in ITEMS}
    assert len(few.load()) == 10
    assert all(known[item.id] == item for item in few.load())
    assert task("own_prompts:seed=1").load()[0] != ITEMS[0]
