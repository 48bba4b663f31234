import json
from collections.abc import Sequence

import pytest
from rich.console import Console

from lenity.cli.receipt import budget_of, document, draw_receipt, summary, token_texts
from lenity.engine.decode import Decoder
from lenity.policies import policy
from lenity.registry import split_spec
from lenity.types import TokenKind
from tests.toys import ScriptedDrafter, cycle_model


class Bytes:
    """One byte a token; 0 is special."""

    special_ids = frozenset({0})

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def encode_chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        raise NotImplementedError

    def decode(self, token_ids: Sequence[int], *, skip_special: bool = True) -> str:
        parts = (b"" if skip_special else b"<end>") if 0 in token_ids else b""
        text = bytes(i for i in token_ids if i) if skip_special or not parts else parts
        return text.decode("utf-8", errors="replace")


def relaxed_generation():
    """Every second draft token is the runner-up, half a nat below: b -> d instead of c."""
    model = cycle_model(128, tokenizer=Bytes())

    def script(ids, limit):
        return [(ids[-1] + 2 * (i + 1)) % 128 for i in range(limit)]

    decoder = Decoder(
        target=model,
        drafter=ScriptedDrafter(type="scripted", script=script),
        policy="asd:budget=1,gate=inf,block_cap=none",
    )
    return decoder.generate("A", max_new_tokens=8, gamma=2), model.tokenizer


def drawn(generation, tokenizer) -> str:
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        console.print(draw_receipt(generation, tokenizer))
    return console.export_text()


def test_a_receipt_shows_what_strict_would_have_said_and_the_price():
    generation, tokenizer = relaxed_generation()
    assert generation.num_relaxed == 2
    said = drawn(generation, tokenizer)
    first = next(t for t in generation.receipt if t.kind is TokenKind.RELAXED)
    assert repr(chr(first.token_id)) in said
    assert repr(chr(first.choice_id)) in said
    assert "0.500" in said
    assert "1.000 of 1 nats" in said
    assert "rank (0 = best)" in said
    assert all(str(kind) in said for kind in {t.kind for t in generation.receipt})


def test_the_receipt_adds_up_to_the_ledger():
    generation, tokenizer = relaxed_generation()
    found = document(generation, tokenizer)
    spent = sum(item["regret_nats"] for item in found["receipt"])
    assert spent == found["totals"]["regret_spent_nats"] == 1.0
    assert found["totals"]["relaxed"] == sum(t["kind"] == "relaxed" for t in found["receipt"])
    assert found["totals"]["emitted"] == len(found["receipt"]) == len(found["token_ids"])
    assert "".join(item["text"] for item in found["receipt"]) == found["text"]
    assert json.loads(json.dumps(found)) == found


def test_a_rule_without_budget_says_nothing_of_one():
    generation = Decoder(target=cycle_model()).generate([1], max_new_tokens=3)
    assert budget_of(generation) is None
    assert "regret" not in summary(generation)
    assert "strict would have said" not in drawn(generation, None)


@pytest.mark.parametrize("text", ["plain", "naïve €", "日本"])
def test_token_texts_join_to_the_text(text):
    ids = tuple(text.encode())
    texts = token_texts(ids, Bytes())
    assert len(texts) == len(ids)
    assert "".join(texts) == text


def test_a_character_stands_with_its_last_byte():
    assert token_texts(tuple("é!".encode()), Bytes()) == ["", "é", "!"]


def test_special_tokens_are_named_and_ids_stand_for_missing_text():
    assert token_texts((65, 0), Bytes()) == ["A", "<end>"]
    assert token_texts((3, 14), None) == [" 3", " 14"]
    assert token_texts((), Bytes()) == []


def test_the_rule_is_shown_with_all_its_knobs():
    generation, tokenizer = relaxed_generation()
    assert generation.effective_policy == "asd:budget=1,gate=inf,block_cap=none"
    found = document(generation, tokenizer)
    assert found["effective_policy"] == generation.effective_policy
    knobs = policy(generation.effective_policy).model_dump(exclude={"type"})
    assert found["policy_knobs"] == knobs
    assert found["policy_knobs"]["relax_special"] is False  # a default
    (line,) = (line for line in summary(generation).split("\n") if line.startswith("policy "))
    name, written = split_spec(line.removeprefix("policy "))
    assert policy(name, **written) == policy(generation.effective_policy)
    assert set(written) == set(knobs)


def test_totals_have_the_names_of_a_round():
    generation, tokenizer = relaxed_generation()
    totals = document(generation, tokenizer)["totals"]
    for name in ("drafted", "evaluated", "accepted", "emitted", "relaxed", "target_passes"):
        assert totals[name] == sum(getattr(record, name) for record in generation.rounds), name
    assert totals["rounds"] == len(generation.rounds)
    assert totals["drafted"] >= totals["evaluated"] >= totals["accepted"] > 0


def test_a_rule_that_had_nothing_to_judge_says_so():
    generation = Decoder(target=cycle_model(), policy="asd:budget=3").generate(
        [1], max_new_tokens=3
    )
    said = summary(generation).split("\n")[0]
    assert said == f"policy strict instead of asd:budget=3 ({generation.fallback_reason})"
    assert document(generation, None)["policy_knobs"] == {}
