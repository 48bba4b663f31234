"""The 19 numbers: each by its definition, 0 where nobody knows, and blind to the neighbours."""

import math
from dataclasses import fields, replace

import pytest
import torch

from lenity.skipping.features import SCALARS, hidden_features, scalar_features
from lenity.types import Draft, DraftRecord
from tests.skipping.drafts import recorded


def scalar(draft, row, j, emitted, family):
    """The definitions, one position at a time; j from 1."""
    gamma = int(draft.lengths[row])
    r = {f.name: getattr(draft.record, f.name)[row, j - 1] for f in fields(DraftRecord)}
    r = {name: float(value) for name, value in r.items() if name != "hidden"}
    return {
        "reveal_step": r["reveal_step"],
        "reveal_rank": r["reveal_rank"] / gamma,
        "reveal_together": r["num_together"] / gamma,
        "is_late": r["is_late"],
        "probability": r["probability"],
        "log_probability": math.log(r["probability"]),
        "entropy": r["entropy"],
        "negative_entropy": -r["entropy"],
        "margin": r["margin"],
        "top5_mass": r["top5_mass"],
        "first_probability": r["first_probability"],
        "first_negative_entropy": -r["first_entropy"],
        "probability_change": r["probability"] - r["first_probability"],
        "negative_entropy_change": -r["entropy"] + r["first_entropy"],
        "position": j,
        "generated": emitted / 512,
        "segment": math.floor((j - 1) / (gamma / 4)) / 3,
        "is_code": float(family == "code"),
        "is_maths": float(family == "maths"),
    }


def test_every_number_is_its_definition():
    draft = recorded([8, 3, 5], gamma=8)
    emitted, families = [0, 256, 7], ["code", None, "maths"]
    found = scalar_features(draft, emitted, families)
    assert found.shape == (3, 8, 19)
    for row, length in enumerate([8, 3, 5]):
        for j in range(1, length + 1):
            wanted = scalar(draft, row, j, emitted[row], families[row])
            assert list(wanted) == list(SCALARS)
            assert found[row, j - 1].tolist() == pytest.approx(list(wanted.values()), abs=1e-6)
        assert not found[row, length:].any(), "padding is nobody's feature"


def test_a_row_does_not_depend_on_its_batch():
    wide = recorded([3, 8], gamma=8)
    record = DraftRecord(
        **{f.name: getattr(wide.record, f.name)[:1, :3] for f in fields(DraftRecord)}
    )
    alone = Draft(token_ids=wide.token_ids[:1, :3], lengths=wide.lengths[:1], record=record)
    assert torch.equal(scalar_features(alone, [5])[0], scalar_features(wide, [5, 9])[0, :3])


def test_a_drafter_without_a_record_has_its_confidence_and_the_place():
    draft = replace(recorded([4, 2]), record=None, confidence=torch.full((2, 4), 0.5))
    found = scalar_features(draft, [51, 0])
    known = {"probability", "log_probability", "position", "generated", "segment"}
    assert {n for n, c in zip(SCALARS, found.unbind(-1), strict=True) if c.any()} == known
    assert hidden_features(draft) is None
    bare = scalar_features(replace(draft, confidence=None), [0, 0])
    assert {n for n, c in zip(SCALARS, bare.unbind(-1), strict=True) if c.any()} == {
        "position",
        "segment",
    }


def test_a_probability_of_zero_has_a_finite_logarithm():
    draft = replace(recorded([2]), record=None, confidence=torch.zeros(1, 4))
    assert torch.isfinite(scalar_features(draft, [0])).all()


def test_an_empty_draft_has_no_numbers():
    draft = Draft(token_ids=torch.zeros(2, 0, dtype=torch.int64), lengths=torch.tensor([0, 0]))
    assert scalar_features(draft, [0, 0]).shape == (2, 0, 19)
