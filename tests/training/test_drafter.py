import pytest
import torch

from lenity.drafters import drafter
from lenity.engine.decode import Decoder
from lenity.errors import ConfigError, ModelMismatchError, NonFiniteError
from lenity.models.heads.checkpoint import open_checkpoint
from lenity.models.heads.made_for import MadeFor
from lenity.training.drafter import DRAFTER, Trainer, is_bf16, schedule
from lenity.training.run_state import STATE, read_curve
from lenity.training.settings import TrainingSettings
from tests.training import rig

SPECS = {
    "eagle3": "eagle3:unroll=3,draft_vocab_size=40",
    "medusa": "medusa:num_heads=3",
    "dspark": "dspark:block_size=3,markov_rank=8,num_layers=1",
    "dflash": "dflash:block_size=3,num_layers=1",
}


def settings(spec, **changed):
    given = {
        "steps": 12,
        "learning_rate": 3e-3,
        "warmup_steps": 3,
        "report_every": 1,
        "validate_every": 1000,
        "checkpoint_every": 1000,
        "precision": "float32",
    }
    return TrainingSettings(recipe=spec, **(given | changed))


class Stop(Exception):
    """Stands for a kill."""


@pytest.fixture(scope="module")
def target():
    return rig.target()


@pytest.fixture(scope="module")
def folders(target, tmp_path_factory):
    made = {}
    for name, spec in SPECS.items():
        made[name] = rig.store(target, tmp_path_factory.mktemp(name), spec)
    return made


@pytest.mark.parametrize("name", SPECS)
def test_the_loss_falls_and_the_published_drafter_is_worth_it(name, target, folders, tmp_path):
    asked = settings(SPECS[name], steps=60, learning_rate=1e-2)
    trainer = Trainer(target, folders[name], asked, tmp_path)
    trainer._held = trainer._train[:6]  # one held-out reply of 30 tokens says nothing
    trained = trainer.run()
    losses = [line["loss"] for line in read_curve(tmp_path) if "loss" in line]
    assert sum(losses[-5:]) < 0.85 * sum(losses[:5])
    assert trained.walks["all"].tokens_per_pass > 1.3  # by chance: 1.02
    assert trained.progress.best == trained.walks["all"].tokens_per_pass
    decoder = Decoder(target=target, drafter=drafter(name, model=str(tmp_path / DRAFTER)))
    reply = rig.replies()[0]
    out = decoder.generate([reply["prompt_ids"]], gamma=3, max_new_tokens=30, ignore_eos=True)[0]
    assert list(out.token_ids) == reply["token_ids"]
    assert sum(record.accepted for record in out.rounds) > 2


@pytest.mark.parametrize("name", ["eagle3", "dspark"])
def test_a_killed_run_gives_the_weights_of_one_that_was_not(name, target, folders, tmp_path):
    asked = settings(SPECS[name], checkpoint_every=4, accumulate=2, batch_size=4)
    whole = Trainer(target, folders[name], asked, tmp_path / "whole")
    whole.run()

    def kill(line):
        if line["step"] == 7:
            raise Stop

    with pytest.raises(Stop):
        Trainer(target, folders[name], asked, tmp_path / "parts", report=kill).run()
    parts = Trainer(target, folders[name], asked, tmp_path / "parts")
    assert parts.state.progress.step == 4
    parts.run()
    mine, its = whole.state.head.state_dict(), parts.state.head.state_dict()
    assert all(torch.equal(mine[key], its[key]) for key in mine)
    steps = [line["step"] for line in read_curve(tmp_path / "parts") if "loss" in line]
    assert steps == list(range(1, 13))
    assert (tmp_path / "parts" / STATE).is_file()


def test_a_run_ends_with_its_minutes(target, folders, tmp_path):
    asked = settings(SPECS["medusa"], steps=10**6, max_minutes=1 / 600)
    trained = Trainer(target, folders["medusa"], asked, tmp_path).run()
    assert trained.progress.step < 1000
    assert trained.sizes is not None


def test_a_run_ends_with_its_processor_time(target, folders, tmp_path):
    asked = settings(SPECS["medusa"], steps=10**6, max_cpu_minutes=1 / 600)
    trained = Trainer(target, folders["medusa"], asked, tmp_path).run()
    assert 1 <= trained.progress.step < 1000
    assert trained.progress.cpu_seconds >= 0.1
    assert read_curve(tmp_path)[-1]["cpu_seconds"] == round(trained.progress.cpu_seconds, 2)


@pytest.mark.parametrize("name", ["eagle3", "medusa"])
def test_a_run_begins_with_the_weights_and_the_vocabulary_of_a_checkpoint(
    name, target, folders, tmp_path
):
    first = Trainer(target, folders[name], settings(SPECS[name]), tmp_path / "first")
    first.run()
    initial = str(tmp_path / "first" / DRAFTER)
    asked = settings(SPECS[name], initial=initial, steps=1, seed=1)
    said = [{"prompt_ids": [7], "token_ids": [40, 41]}]  # would give another vocabulary
    second = Trainer(target, folders[name], asked, tmp_path / "second", replies=said)
    if name == "eagle3":
        assert torch.equal(second.tables.kept_ids, first.tables.kept_ids)
    mine, its = first.state.head.state_dict(), second.state.head.state_dict()
    assert all(torch.equal(mine[k].to(torch.bfloat16), its[k].to(torch.bfloat16)) for k in mine)
    second.run()
    again = Trainer(target, folders[name], asked, tmp_path / "second", replies=said)
    assert again.state.progress.step == 1
    assert torch.equal(
        next(again.state.head.parameters()), next(second.state.head.parameters())
    )  # a run that goes on has its own state


def test_a_run_says_which_target_its_drafter_is_for(target, folders, tmp_path):
    Trainer(target, folders["medusa"], settings(SPECS["medusa"], steps=1), tmp_path).run()
    made_for = open_checkpoint(tmp_path / DRAFTER).made_for
    assert made_for == MadeFor.of(target)
    other = rig.target(layers=3)
    asked = settings(SPECS["medusa"], initial=str(tmp_path / DRAFTER))
    with pytest.raises(ModelMismatchError, match="num_layers 2"):
        Trainer(other, folders["medusa"], asked, tmp_path / "other")


def test_the_vocabulary_is_chosen_from_all_recorded_replies(target, folders, tmp_path):
    asked = settings("eagle3:draft_vocab_size=2,unroll=1", steps=1)
    said = [{"prompt_ids": [7, i], "token_ids": [40, 40, 41]} for i in range(40)]
    trainer = Trainer(target, folders["eagle3"], asked, tmp_path, replies=said)
    assert trainer.tables.kept_ids.tolist() == [40, 41]


def test_features_of_more_layers_than_asked_for_will_do(target, folders, tmp_path):
    asked = settings(SPECS["medusa"], steps=2)
    apart = Trainer(target, folders["medusa"], asked, tmp_path / "apart").run()
    shared = Trainer(target, folders["eagle3"], asked, tmp_path / "shared").run()
    losses = [[line.get("loss") for line in read_curve(run.folder)] for run in (apart, shared)]
    assert losses[0] == losses[1]


def test_features_of_other_layers_are_refused(target, folders, tmp_path):
    with pytest.raises(ConfigError, match=r"layers \[0, 1\]"):
        Trainer(target, folders["eagle3"], settings("dspark:taps=0+1"), tmp_path)


def test_a_gradient_that_is_not_finite_ends_the_run(target, folders, tmp_path):
    trainer = Trainer(target, folders["medusa"], settings(SPECS["medusa"]), tmp_path)
    next(trainer.state.head.parameters()).data.fill_(float("nan"))
    with pytest.raises(NonFiniteError, match="step 0"):
        trainer.run()


def test_the_learning_rate_rises_and_falls():
    asked = settings("medusa", warmup_steps=4, floor=0.1)
    assert schedule(asked, 0, 0.0) == 0.25
    assert schedule(asked, 3, 0.0) == 1
    assert schedule(asked, 9, 0.5) == pytest.approx(0.55)
    assert schedule(asked, 9, 1.0) == pytest.approx(0.1)


def test_precision_is_what_was_asked_for():
    cpu = torch.device("cpu")
    assert is_bf16("bfloat16", cpu)
    assert not is_bf16("float32", torch.device("cuda"))
    assert is_bf16("auto", torch.device("cuda"))
    assert isinstance(is_bf16("auto", cpu), bool)
