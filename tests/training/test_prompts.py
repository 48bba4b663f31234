from collections import Counter

import pytest

from lenity.training.prompts import FAMILIES, is_held_out, prompt, prompts


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_is_a_function_of_family_and_index(family):
    assert [prompt(family, i) for i in range(40)] == [prompt(family, i) for i in range(40)]
    assert not any("{" in prompt(family, i) and "}" in prompt(family, i) for i in range(200))


def test_about_a_tenth_is_held_out_and_no_prompt_is_on_both_sides():
    texts = {prompt(family, i) for family in FAMILIES for i in range(800)}
    share = sum(map(is_held_out, texts)) / len(texts)
    assert 0.07 < share < 0.13
    held = {text for _, text in prompts(tuple(FAMILIES), 100, held_out=True)}
    seen = {text for _, text in prompts(tuple(FAMILIES), 400, held_out=False)}
    assert len(held) == 100
    assert len(seen) == 400
    assert not held & seen


def test_families_take_turns():
    found = Counter(family for family, _ in prompts(tuple(FAMILIES), 80, held_out=False))
    assert max(found.values()) - min(found.values()) <= 8


def test_a_family_that_has_no_more_prompts_ends(monkeypatch):
    monkeypatch.setitem(FAMILIES, "short", ("Name {a}.", "Greet {a}."))
    found = [text for _, text in prompts(("short",), 10**6, held_out=False)]
    assert len(found) == len(set(found)) <= 2 * 25
