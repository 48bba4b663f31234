"""Training on blocks whose survival is known: what is learned, chosen, kept and resumed."""

import json
import math
from dataclasses import replace

import pytest
import torch

from lenity.drafters import drafter
from lenity.engine.decode import Decoder
from lenity.errors import ConfigError, RunDirError
from lenity.requests import GenerationSettings
from lenity.skipping import skip_rule
from lenity.skipping.base import SkipContext
from lenity.skipping.features import SCALARS
from lenity.skipping.survival import load_predictor
from lenity.training.survival import SurvivalSettings, fit, fold_prompts, logits_of, rotate
from lenity.training.survival_blocks import Blocks, capture_blocks
from tests.drafters.rig import tiny_llama
from tests.models.masked_tiny import masked_folder

ENTROPY = SCALARS.index("entropy")


def made(num=400, gamma=4, hidden_size=2, seed=0, prompts=10):
    """Blocks whose every position survives, given the last one did, with a chance that its entropy
    (a scalar) and the first of its hidden numbers give away."""
    draw = torch.Generator().manual_seed(seed)
    scalars = torch.zeros(num, gamma, len(SCALARS))
    scalars[..., SCALARS.index("position")] = torch.arange(1.0, gamma + 1)
    scalars[..., ENTROPY] = torch.rand(num, gamma, generator=draw)
    hidden = torch.randn(num, gamma, hidden_size, generator=draw).to(torch.bfloat16)
    logits = 2.0 - 4 * scalars[..., ENTROPY] + 3 * hidden[..., 0].float()
    survives = torch.rand(num, gamma, generator=draw) < logits.sigmoid()
    lengths = torch.full((num,), gamma)
    lengths[::7] = gamma - 1
    return Blocks(
        prompts=tuple(f"p{row * prompts // num}" for row in range(num)),
        scalars=scalars,
        hidden=hidden,
        confidence=torch.rand(num, gamma, generator=draw),
        lengths=lengths,
        accepted=torch.minimum(survives.cumprod(1).sum(1), lengths),
    )


def settings(estimand="conditional", **changes):
    base = {"width": 16, "epochs": 12, "batch_size": 64, "learning_rate": 1e-2}
    return SurvivalSettings(estimand=estimand, **(base | changes))


def loss(predictor, blocks, estimand):
    counts = blocks.counts(estimand)
    wanted = blocks.survives()[counts].float()
    return float(
        torch.nn.functional.binary_cross_entropy_with_logits(
            logits_of(predictor, blocks)[counts], wanted
        )
    )


def base_rate_loss(blocks, estimand):
    rate = blocks.survives()[blocks.counts(estimand)].double().mean()
    return float(-(rate * rate.log() + (1 - rate) * (1 - rate).log()))


@pytest.mark.parametrize("estimand", ["marginal", "conditional"])
def test_what_can_be_known_is_learned_and_the_state_helps(estimand):
    train, validation, test = (made(seed=seed) for seed in (0, 1, 2))
    whole = fit(train, validation, settings(estimand))
    alone = fit(train, validation, settings(estimand, has_hidden=False))
    assert (whole.description.hidden_size, alone.description.hidden_size) == (2, 0)
    losses = [loss(p, test, estimand) for p in (whole, alone)]
    assert losses[0] < losses[1] - 0.05 < base_rate_loss(test, estimand) - 0.05


def test_the_best_epoch_is_kept_and_named():
    train, validation = made(seed=0), made(seed=1)
    found = fit(train, validation, settings())
    told = found.description.validation_loss
    assert told == pytest.approx(loss(found, validation, "conditional"), abs=1e-6)
    longer = fit(train, validation, settings(epochs=13))
    assert longer.description.validation_loss <= told, "one more epoch cannot lose"
    first = fit(train, validation, settings(epochs=1))
    assert told < first.description.validation_loss


def test_later_epochs_that_are_worse_are_forgotten():
    """All survives in training and nothing in validation: the first epoch is the best."""
    blocks = made(num=80)
    train = replace(blocks, accepted=blocks.lengths)
    validation = replace(blocks, accepted=torch.zeros_like(blocks.lengths))
    first, many = (fit(train, validation, settings(epochs=epochs)) for epochs in (1, 4))
    assert many.description == first.description
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, many.state_dict()[name])


def test_the_same_seed_is_the_same_predictor():
    blocks = made(num=80)
    one, same, other = (
        fit(blocks, blocks, settings(epochs=2, seed=seed)).state_dict() for seed in (0, 0, 1)
    )
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


def test_inputs_are_standardised_and_constant_ones_are_0():
    train = made()
    train.scalars[..., SCALARS.index("generated")] = 0.1
    found = fit(train, train, settings("marginal", epochs=1))
    counts = train.counts("marginal")
    inputs = torch.cat([train.hidden.float(), train.scalars], -1)[counts]
    seen = (inputs - found.mean) * found.scale
    varies = {ENTROPY + 2, SCALARS.index("position") + 2, 0, 1}
    for column in range(inputs.shape[1]):
        deviation = float(seen[:, column].std(correction=0))
        assert deviation == pytest.approx(1.0 if column in varies else 0.0, abs=1e-4)
        assert float(seen[:, column].mean()) == pytest.approx(0, abs=1e-4)


def test_folds_are_dealt_by_prompt():
    folds = fold_prompts([f"p{i}" for i in range(12)] * 3, 5, 12345)
    assert sorted(map(len, folds)) == [2, 2, 2, 3, 3]
    assert sorted(key for fold in folds for key in fold) == sorted(f"p{i}" for i in range(12))
    assert folds == fold_prompts([f"p{i}" for i in reversed(range(12))], 5, 12345)
    assert folds != fold_prompts([f"p{i}" for i in range(12)], 5, 1)
    with pytest.raises(ConfigError, match="at least 5 prompts with drafted blocks for 5 folds"):
        fold_prompts(["a", "b"], 5, 0)


def test_every_block_is_judged_once_by_a_predictor_that_never_saw_its_prompt(tmp_path):
    blocks, small = made(num=100), settings(epochs=1)
    found = rotate(blocks, small, tmp_path / "run", drafter="toy")
    tested = [key for rotation in found for key in rotation.test.prompts]
    assert sorted(tested) == sorted(blocks.prompts)
    for rotation in found:
        lengths = rotation.test.lengths
        assert rotation.scores.shape == (len(lengths), 4)
        assert ((rotation.scores > 0).sum(1) == lengths).all()
        assert rotation.predictor.description.drafter == "toy"
    folds = fold_prompts(blocks.prompts, 5, 12345)
    train = blocks.of_prompts([key for fold in folds[2:] for key in fold])
    alone = fit(train, blocks.of_prompts(folds[1]), small).state_dict()
    again = load_predictor(tmp_path / "run" / "fold-0").state_dict()
    assert all(torch.equal(alone[name], again[name]) for name in alone)


def test_a_stopped_run_goes_on_and_another_is_refused(tmp_path):
    blocks, small, told = made(num=100), settings(epochs=1), []

    def stop(fold, loss):
        told.append(fold)
        if fold == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rotate(blocks, small, tmp_path, progress=stop)
    weights = tmp_path / "fold-0" / "predictor.safetensors"
    before = weights.stat().st_mtime_ns
    (tmp_path / "fold-1" / "predictor.json").unlink()  # killed before its last file
    found = rotate(blocks, small, tmp_path)
    assert [rotation.fold for rotation in found] == [0, 1, 2, 3, 4]
    assert weights.stat().st_mtime_ns == before
    with pytest.raises(RunDirError, match="got others in"):
        rotate(blocks, settings(epochs=2), tmp_path)
    with pytest.raises(RunDirError, match="trained on these 9 prompts"):
        rotate(blocks.of_prompts(sorted(set(blocks.prompts))[1:]), small, tmp_path)


def test_temperatures_come_from_the_validation_fold(tmp_path):
    blocks, asked = made(num=100), []

    def calibrate(logits, lengths, accepted):
        asked.append((logits.shape, len(lengths), len(accepted)))
        return (2.0, 0.5)

    found = rotate(blocks, settings(epochs=1, is_calibrated=True), tmp_path, calibrate=calibrate)
    sizes = [len(rotation.test.lengths) for rotation in found]
    assert asked == [((n, 4), n, n) for n in [*sizes[1:], sizes[0]]]
    about = json.loads((tmp_path / "fold-0" / "predictor.json").read_text())
    assert about["temperatures"] == [2.0, 0.5]
    first = found[0]
    logit = float(logits_of(first.predictor, first.test)[0, 0])
    assert float(first.scores[0, 0]) == pytest.approx(1 / (1 + math.exp(-logit / 2)), abs=1e-5)


class Listener:
    """Asks a rule about every block that is verified, as the loop would."""

    wants_divergence = False

    def __init__(self, rule):
        self.rule, self.scores = rule, []

    def observe(self, view):
        emitted = [row.num_emitted for row in view.rows]
        context = SkipContext(draft=view.draft, num_emitted=emitted, rounds=emitted)
        if view.draft.gamma:
            self.scores += self.rule.signal(context).tolist()


def test_a_trained_predictor_says_the_same_in_the_loop_and_skips(tmp_path):
    """Captured blocks and live drafts have the same features; the gates' limit is strict."""
    target, prompts = tiny_llama(0, words=120), [[i, i + 1] for i in range(2, 8)]
    made = drafter("masked_diffusion", model=str(masked_folder(tmp_path / "drafter", "dream")))
    wanted = GenerationSettings(gamma=4, max_new_tokens=12, ignore_eos=True)
    decoder = Decoder(target=target, drafter=made, max_batch_size=1)
    asked = [{"prompt_ids": ids, "family": "chat"} for ids in prompts]
    blocks = capture_blocks(decoder, asked, tmp_path / "blocks", wanted)
    found = rotate(blocks, settings(epochs=2), tmp_path / "run")
    folder = found[0].folder
    rule = skip_rule(f"conditional:predictor={folder},local=0,prefix=0,min_prefix=1")
    listener = Listener(rule)
    plain = decoder.generate(prompts, wanted, observer=listener)
    told = found[0].predictor.probabilities(logits_of(found[0].predictor, blocks))
    for row, (own, length) in enumerate(zip(told.tolist(), blocks.lengths.tolist(), strict=True)):
        # states are stored in bf16
        assert listener.scores[row][:length] == pytest.approx(own[:length], abs=0.02)
    loose = Decoder(target=target, drafter=made, skip=rule).generate(prompts, wanted)
    assert sum(generation.num_skipped for generation in loose) > 0
    never = skip_rule(f"conditional:predictor={folder},local=1.1")
    strict = Decoder(target=target, drafter=made, skip=never).generate(prompts, wanted)
    assert [g.token_ids for g in strict] == [g.token_ids for g in plain]
