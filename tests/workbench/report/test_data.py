"""The document: frozen, strict, the same after JSON, filled from verdicts."""

import subprocess
import sys

import numpy as np
import pytest
from pydantic import ValidationError

from lenity.workbench.gates import decide
from lenity.workbench.pairing import Pairs
from lenity.workbench.report.data import PLOT_TABLES, ReportData, VerdictCard
from lenity.workbench.tables import NATS_APART, POINTS, Column, Table
from lenity.workbench.triplets import Triplets
from lenity.workbench.verdicts import judge_logprobs, judge_quality, judge_speed
from tests.workbench.made import record
from tests.workbench.report.sample import bare, report, sweeps, tasks


def test_a_report_is_the_same_after_json():
    data = report()
    assert ReportData.model_validate_json(data.model_dump_json()) == data


def test_what_it_does_not_know_is_refused():
    with pytest.raises(ValidationError, match="surprise"):
        bare(surprise=1)
    with pytest.raises(ValidationError, match="frozen"):
        bare().title = "Other"


def test_two_parts_cannot_have_one_file():
    with pytest.raises(ValidationError, match="'asd-budget' twice"):
        bare(sweeps=(sweeps()[0], sweeps()[0]))
    column = Column(key="k", label="K")
    table = Table(name=PLOT_TABLES[0], title="T", columns=(column,))
    with pytest.raises(ValidationError, match="taken by the plots"):
        bare(tables=(table,))
    with pytest.raises(ValidationError, match="'tasks' twice"):
        bare(tasks=tasks(), tables=(tasks(),))


def pairs(count=40, worse=0):
    strict = [record(str(i), "strict", score=1.0) for i in range(count)]
    relaxed = [record(str(i), "relaxed", score=float(i >= worse)) for i in range(count)]
    return Pairs.of(strict, relaxed)


def test_a_card_says_what_the_verdicts_said(seed):
    rng = np.random.default_rng(seed)
    quality = judge_quality(pairs(worse=20), rng, resamples=200)
    speed = judge_speed(Triplets(kept=(), dropped=()))
    decision = decide(quality, (), speed)
    card = VerdictCard.of(decision, quality, speed)
    assert card.outcome == "rejected"
    assert card.words.startswith("Quality fails")
    assert card.quality_difference == quality.interval
    assert card.quality_unit == POINTS
    assert (card.margin, card.num_prompts, card.num_triplets) == (0.01, 40, 0)
    assert card.gates == decision.gates
    assert (card.gain, card.gain_over_repeats) == (speed.prompts, speed.repeats)


def test_a_card_says_what_it_would_have_taken(seed):
    rng = np.random.default_rng(seed)
    quality = judge_quality(pairs(worse=1), rng, resamples=200)
    card = VerdictCard.of(decide(quality, ()), quality)
    assert card.outcome == "inconclusive"
    assert quality.needed is not None
    assert card.needed == quality.needed.words
    assert card.num_triplets is None


def test_log_probabilities_are_in_nats(seed):
    quality = judge_logprobs(pairs(), np.random.default_rng(seed), resamples=200)
    card = VerdictCard.of(decide(quality, ()), quality)
    assert card.quality_name == "log-probability per token"
    assert card.quality_unit == NATS_APART


def test_filling_and_reading_a_report_needs_no_torch_and_no_plotting():
    probe = (
        "import sys, lenity.workbench.report.data, lenity.workbench.report.write\n"
        "import lenity.workbench.report.plot_tables\n"
        "loaded = {'torch', 'matplotlib', 'jinja2', 'transformers'} & set(sys.modules)\n"
        "sys.exit(f'imports {loaded}' if loaded else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
