"""Signals: raw confidence, trained survival, and drafters that give neither."""

import math
import shutil

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from lenity.errors import ConfigError
from lenity.skipping import skip_rule
from lenity.skipping.base import SkipContext
from lenity.skipping.features import SCALARS
from lenity.skipping.signals import geometric_mean
from lenity.skipping.survival import Description, SurvivalPredictor
from lenity.types import Draft
from tests.skipping.drafts import asked, recorded

VECTOR = [0.99, 0.91, 0.99, 0.99, 0.92, 0.99, 0.85, 0.99]


def test_geometric_mean():
    scores = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.25, 0.25]], dtype=torch.float64)
    wanted = [[0.5, 0.5, 0.0], [1.0, 0.5, (1 / 16) ** (1 / 3)]]
    assert geometric_mean(scores).tolist() == [pytest.approx(row) for row in wanted]


def test_a_drafter_without_confidence_is_refused():
    draft = Draft(token_ids=torch.zeros(1, 2, dtype=torch.int64), lengths=torch.tensor([2]))
    context = SkipContext(draft=draft, num_emitted=[0], rounds=[0])
    with pytest.raises(ConfigError, match="expects a drafter that gives a confidence"):
        skip_rule("raw").prefix_length(context)


class Told(SurvivalPredictor):
    """A predictor that says what the test wrote into the draft's confidence."""

    def scores(self, draft, num_emitted, families=None):
        return draft.confidence


def told(estimand):
    return Told(Description(estimand=estimand), name="told")


def context(scores):
    row = torch.tensor([scores], dtype=torch.float64)
    ids = torch.zeros(row.shape, dtype=torch.int64)
    draft = Draft(token_ids=ids, lengths=torch.tensor([len(scores)]), confidence=row)
    return asked(draft)


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ("marginal:local=0.9,prefix=0.9", 6),
        ("marginal:local=0,prefix=0.9", 6),  # the larger of the two decides
        ("marginal:local=0.9,prefix=0", 6),
        ("marginal:local=0.92,prefix=0.9", 1),
        ("conditional:local=0.9,prefix=0.9", 2),
        ("conditional:local=0.9,prefix=0.8", 6),
        ("conditional:local=0,prefix=0.9", 2),  # the local gate is redundant here
    ],
)
def test_survival_vectors(spec, wanted):
    estimand = spec.partition(":")[0]
    rule = skip_rule(spec, predictor=told(estimand), min_prefix=0)
    assert rule.prefix_length(context(VECTOR)).tolist() == [wanted]


def test_confidence_is_a_conditional_predictor():
    rule = skip_rule("conditional:predictor=confidence,prefix=0.8,min_prefix=0")
    assert rule.prefix_length(context(VECTOR)).tolist() == [6]
    bare = Draft(token_ids=torch.zeros(1, 2, dtype=torch.int64), lengths=torch.tensor([2]))
    with pytest.raises(ConfigError, match="'conditional' expects a drafter that gives"):
        rule.prefix_length(asked(bare))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_prefix_scores_are_ordered(scores):
    """prod <= min <= geometric mean, and each is its definition."""
    row = torch.tensor([scores], dtype=torch.float64)
    product = skip_rule("conditional:predictor=confidence").prefix_scores(row)[0].tolist()
    least = skip_rule("marginal", predictor=told("marginal")).prefix_scores(row)[0].tolist()
    mean = geometric_mean(row)[0].tolist()
    for k in range(len(scores)):
        assert product[k] == pytest.approx(math.prod(scores[: k + 1]), rel=1e-9)
        assert least[k] == min(scores[: k + 1])
        assert product[k] <= least[k] * (1 + 1e-9)
        assert least[k] <= mean[k] * (1 + 1e-9)


def test_a_folder_is_read_once_and_only_when_asked(tmp_path):
    folder = tmp_path / "marginal"
    rule = skip_rule(f"marginal:predictor={folder},min_prefix=0,local=0,prefix=0")
    draft = recorded([4, 2])
    with pytest.raises(ConfigError, match="Expected a survival predictor in"):
        rule.prefix_length(asked(draft))
    predictor = SurvivalPredictor(Description(estimand="marginal", hidden_size=3))
    folder.mkdir()
    (folder / "predictor.json").write_text(predictor.description.model_dump_json())
    save_file(predictor.state_dict(), folder / "predictor.safetensors")
    assert rule.signal(asked(draft))[1].tolist() == [0.5, 0.5, 0, 0]
    shutil.rmtree(folder)
    assert rule.prefix_length(asked(draft)).tolist() == [4, 2]
    assert f"predictor={folder}" in rule.spec
    assert skip_rule(rule.spec) == skip_rule(rule.spec)


def test_the_family_reaches_the_predictor():
    predictor = SurvivalPredictor(Description(estimand="marginal", width=1))
    state = predictor.state_dict()
    state["layers.0.weight"][0, SCALARS.index("is_code")] = 5.0
    for layer in (1, 2, 3):
        state[f"layers.{layer}.weight"].fill_(1.0)
    code, plain = (
        skip_rule("marginal", predictor=predictor, family=family).signal(asked(recorded([1])))
        for family in ("code", None)
    )
    assert plain[0, 0] == 0.5 < code[0, 0]


def test_a_predictor_of_the_other_estimand_is_refused():
    rule = skip_rule("marginal", predictor=told("conditional"))
    with pytest.raises(ConfigError, match="which estimates conditional survival"):
        rule.prefix_length(context(VECTOR))
    assert rule.spec == "marginal:predictor=told"


def test_a_survival_rule_needs_a_predictor():
    with pytest.raises(ConfigError, match="needs the knob predictor"):
        skip_rule("marginal")
