import time
from pathlib import Path
from typing import ClassVar, Literal

import pytest
import torch

from lenity.drafters import drafter
from lenity.drafters.base import Drafter
from lenity.engine.timing import TimedSession, curves_file, measure_curves, time_drafts, time_passes
from lenity.errors import ConfigError
from tests.drafters.heads import tiny_dflash
from tests.drafters.rig import tiny_llama
from tests.toys import ScriptedDrafter, ScriptedSession, cycle_model, oracle

TARGET = tiny_llama(0)


class SlowSession(ScriptedSession):
    """Sleeps where a real drafter would compute."""

    def propose(self, context):
        time.sleep(0.004)
        return super().propose(context)

    def observe(self, accepted_lengths, features):
        time.sleep(0.002)
        super().observe(accepted_lengths, features)


class Slow(Drafter):
    idea: ClassVar[str] = "slow"
    paper: ClassVar[str] = "none"
    type: Literal["slow"] = "slow"

    def open(self, target, cache):
        return SlowSession(oracle(target))


def test_every_width_and_batch_is_timed_and_nothing_moves():
    model = cycle_model()
    found = time_passes(model, (1, 3), (1, 2), context=4, repeats=2)
    assert [(c.width, c.batch) for c in found] == [(1, 1), (3, 1), (1, 2), (3, 2)]
    assert all(0 < c.low_seconds <= c.seconds <= c.high_seconds for c in found)
    assert model.num_forwards == 2 + 4 * 3  # the contexts; every size, the uncounted one too


def test_a_draft_is_proposing_and_observing():
    (found,) = time_drafts(cycle_model(), Slow(), (3,), context=4, repeats=3)
    assert (found.gamma, found.batch) == (3, 1)
    assert found.low_seconds >= 0.006


@pytest.mark.parametrize("gamma", [1, 4])
def test_every_timed_round_drafts_gamma_tokens_for_every_row(gamma):
    asked = []

    def script(ids, limit):
        asked.append((len(ids), limit))
        return oracle(model)(ids, limit)  # all accepted: the text grows as fast as it can

    model = cycle_model()
    time_drafts(model, ScriptedDrafter(script=script), (gamma,), (2,), context=5, repeats=3)
    assert [limit for _, limit in asked] == [gamma] * (4 * 2)
    assert [length for length, _ in asked] == [6 + i * (gamma + 1) for i in range(4) for _ in "ab"]


def test_the_timed_session_is_the_session():
    model = cycle_model()
    timed = TimedSession(ScriptedSession(oracle(model), taps=(3,)), model)
    assert timed.taps == (3,)
    timed.admit((1, 2), None)
    timed.keep([0])
    assert timed.seconds == []


def test_curves_of_a_real_drafter(tmp_path):
    dflash = drafter("dflash", model=tiny_dflash(TARGET))
    found = measure_curves(
        TARGET, dflash, max_draft_length=4, widths=(1, 2, 8), batches=(1, 2), repeats=1
    )
    assert [(c.width, c.batch) for c in found.passes] == [(w, b) for b in (1, 2) for w in (1, 2, 8)]
    assert [(c.gamma, c.batch) for c in found.drafts] == [(g, b) for b in (1, 2) for g in (1, 2, 4)]
    assert (found.max_gamma, found.batches, found.context) == (4, (1, 2), 128)
    assert found.drafter == "dflash:model=dflash"
    assert found.threads == torch.get_num_threads()
    first = found.passes[0]
    assert first.low_seconds == first.seconds == first.high_seconds, "of a single timing"


def test_the_last_gamma_goes_with_the_widest_pass():
    found = measure_curves(TARGET, drafter("ngram"), widths=(1, 8), batches=(1,), repeats=1)
    assert [c.gamma for c in found.drafts] == [1, 2, 4, 7]
    assert measure_curves(TARGET, widths=(1, 8), batches=(1,), repeats=1).drafts == ()


def test_a_short_model_gets_a_short_context():
    short = tiny_llama(0, max_positions=40)
    found = measure_curves(short, drafter("ngram"), widths=(1, 8), batches=(1,), repeats=2)
    assert found.context == 40 - 4 * 8 - 1
    with pytest.raises(ConfigError, match="fewer repeats"):
        measure_curves(short, widths=(1, 16), repeats=2)


def test_one_file_per_target_drafter_and_machine_setting():
    base = measure_curves(TARGET, widths=(1, 2), batches=(1,), repeats=1)
    file = curves_file(Path("here"), base)
    assert file.parent == Path("here/curves")
    assert file.name.startswith("tiny-llama-float32-")
    same = base.model_copy(update={"repeats": 9})
    assert curves_file(Path("here"), same) == file
    for change in ({"drafter": "ngram"}, {"threads": 64}, {"device": "cuda"}, {"target": "x/l"}):
        assert curves_file(Path("here"), base.model_copy(update=change)) != file
