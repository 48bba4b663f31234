import json
import shutil

import pytest
from pydantic import ValidationError

from lenity.drafters import drafter
from lenity.errors import ConfigError, ModelMismatchError
from lenity.models.causal import CausalLM
from lenity.models.heads.checkpoint import open_checkpoint
from lenity.models.heads.made_for import FILE, MadeFor, read_made_for
from lenity.models.loading import load
from tests.models.families import build
from tests.models.heads.golden import FOLDER
from tests.models.test_tokenizers import TEMPLATE, WORDS, swapped, words


def target(names=WORDS, template=TEMPLATE, family="llama"):
    tokenizer = None if names is None else words(names, chat_template=template)
    return CausalLM(build(family), tokenizer, name="org/target")


def test_a_target_is_told_by_sizes_tokens_and_template():
    found = MadeFor.of(target())
    assert (found.target, found.hidden_size, found.vocab_size) == ("org/target", 32, 96)
    assert len(found.vocabulary_hash) == len(found.template_hash) == 16
    assert found.differences(target()) == {}
    assert found.is_known_to_fit(target())
    found.check("org/drafter", target())


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"names": swapped(WORDS, 10, 11)}, "vocabulary_hash"),
        ({"template": TEMPLATE + " "}, "template_hash"),
    ],
    ids=["tokens", "template"],
)
def test_another_target_of_the_same_sizes_is_refused(changed, key):
    made_for, other = MadeFor.of(target()), target(**changed)
    assert made_for.differences(other).keys() == {key}
    assert not made_for.is_known_to_fit(other)
    with pytest.raises(ModelMismatchError, match=rf"org/drafter .*org/target: {key}.*{FILE}"):
        made_for.check("org/drafter", other)


@pytest.mark.parametrize("key", ["hidden_size", "num_layers"])
def test_sizes_count_without_a_tokenizer(key):
    bare = target(names=None)
    made_for = MadeFor.of(bare)
    assert made_for.vocabulary_hash is None
    assert made_for.template_hash is None
    other = made_for.model_copy(update={key: 7})
    assert other.differences(bare).keys() == {key}
    assert not made_for.is_known_to_fit(bare)  # nothing differs, nothing is known


def test_what_is_not_known_is_no_difference_and_padding_is_none():
    whole, bare = MadeFor.of(target()), target(names=None)
    assert whole.differences(bare) == {}
    padded = whole.model_copy(update={"vocab_size": 128})
    assert padded.differences(target()) == {}
    assert padded.differences(bare).keys() == {"vocab_size"}


def test_a_drafter_of_another_target_is_refused_when_it_is_opened(tmp_path):
    name = "eagle3-safeai-a"
    model = load(str(FOLDER / name / "target"))
    shutil.copytree(FOLDER / name / "drafter", tmp_path / "drafter")
    file = tmp_path / "drafter" / FILE
    made_for = MadeFor.of(model)
    file.write_text(made_for.model_dump_json())
    assert open_checkpoint(tmp_path / "drafter").made_for == made_for
    opened = drafter("eagle3", model=str(tmp_path / "drafter"))
    opened.open(model, model.new_cache())
    file.write_text(made_for.model_copy(update={"num_layers": 99}).model_dump_json())
    open_checkpoint(tmp_path / "drafter")  # nothing to compare it with
    fresh = drafter("eagle3", model=str(tmp_path / "drafter"))
    with pytest.raises(ModelMismatchError, match="num_layers 99"):
        fresh.open(model, model.new_cache())


def test_a_folder_without_the_file_says_nothing_and_a_broken_file_is_refused(tmp_path):
    assert read_made_for(tmp_path) is None
    (tmp_path / FILE).write_text('{"version": 1')
    with pytest.raises(ConfigError, match=FILE):
        read_made_for(tmp_path)
    content = {**MadeFor.of(target(names=None)).model_dump(), "template": "x"}
    (tmp_path / FILE).write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=rf"{FILE}: template: expected no field.*template_hash"):
        read_made_for(tmp_path)
    with pytest.raises(ValidationError):
        MadeFor(target="x")
