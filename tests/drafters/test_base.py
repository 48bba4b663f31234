from typing import ClassVar, Literal

import pytest
import torch
from pydantic import Field, ValidationError

from lenity.drafters import drafter
from lenity.drafters.base import DraftContext, Drafter, no_draft
from lenity.sampling import Coins, Sampling
from tests.toys import cycle_model


class Named(Drafter):
    """A drafter with a knob of each kind."""

    idea: ClassVar[str] = "none"
    paper: ClassVar[str] = "none"

    type: Literal["named"] = "named"
    share: float = Field(default=0.5)
    label: str | None = None


def test_a_spec_leaves_defaults_out():
    assert Named().spec == "named"
    assert str(Named(share=0.25, label="x")) == "named:share=0.25,label=x"


def test_settings_cannot_change():
    with pytest.raises(ValidationError, match="frozen"):
        Named().share = 1.0


def test_a_drafter_passes_through_the_registry_as_it_is():
    made = Named()
    assert drafter(made) is made


def test_a_drafter_must_say_how_it_opens():
    target = cycle_model(4)
    with pytest.raises(NotImplementedError):
        Named().open(target, target.new_cache())


@pytest.mark.parametrize(("limits", "gamma"), [([], 0), ([0, 0], 0), ([2, 5, 0], 5)])
def test_gamma_is_the_largest_limit(limits, gamma):
    rows = len(limits)
    context = DraftContext(
        token_ids=[[1]] * rows,
        limits=limits,
        sampling=[Sampling()] * rows,
        coins=Coins([0] * rows, [1] * rows),
    )
    assert context.gamma == gamma


def test_no_draft_has_a_row_for_every_request_and_no_position():
    draft = no_draft(3, torch.device("cpu"))
    assert draft.token_ids.shape == (3, 0)
    assert draft.lengths.tolist() == [0, 0, 0]
    assert draft.probs is None
