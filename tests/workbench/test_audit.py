"""Judging a recorded audit: without torch, from its directory alone, with a stated epsilon."""

import subprocess
import sys

import pytest

from lenity.errors import ProtocolError
from lenity.workbench.audit import (
    EOS_RELAXED,
    EOS_STRICT,
    RELAXED,
    arms_of,
    epsilon_of,
    evidence_text,
    judge,
    read_evidence,
)
from lenity.workbench.audit_run import run_audit
from lenity.workbench.divergence import Evidence
from lenity.workbench.rundir import RunDir
from tests.workbench.studies import audit_settings, point, questions, questions_file, study


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit")
    data = questions_file(folder)
    settings = audit_settings(questions=questions(spec="jsonl:scorer=exact"))
    run, missing = run_audit(study(folder / "run", data), point(data), settings)
    assert not missing
    run.finish()
    return folder / "run"


def test_arms_are_the_point_and_its_own_drafter_under_strict(tmp_path):
    fixed, natural = arms_of(point(questions_file(tmp_path)), audit_settings())
    assert [arm.name for arm in fixed] == ["strict-a", RELAXED, "strict-b"]
    assert [arm.name for arm in natural] == ["plain", EOS_STRICT, EOS_RELAXED]
    assert {arm.drafter for arm in fixed} == {"ngram"}
    assert natural[0].drafter is None
    assert fixed[1].policy == natural[2].policy == "asd:budget=1,gate=inf,block_cap=none"
    assert fixed[0].policy == natural[1].policy == "strict"


def test_plain_decoding_is_nothing_to_audit(tmp_path):
    off = point(questions_file(tmp_path)).model_copy(update={"drafter": None, "gamma": 0})
    with pytest.raises(ProtocolError, match="nothing to audit"):
        arms_of(off, audit_settings())


def test_judge_reads_what_was_recorded(recorded):
    found = judge(RunDir.open(recorded))
    assert found.quality.num_prompts == 8
    assert found.speed is not None
    assert len(found.speed.triplets.kept) + len(found.speed.triplets.dropped) == 2
    spent = [record.regret_spent for record in found.records[EOS_RELAXED]]
    assert max(spent) <= 1
    assert sum(spent) > 0
    assert found.divergences.counts["policy"] > 0
    assert found.divergences.counts["defect"] == 0
    assert found.noise is not None
    assert found.noise.share == 0
    assert found.numbers["difference"] == found.quality.interval.estimate
    assert found.signal is not None
    assert found.signal.strict.estimate == 1.0


def test_judging_again_says_the_same(recorded):
    first, second = (judge(RunDir.open(recorded)).decision for _ in range(2))
    assert first == second


def test_judging_needs_no_torch(recorded):
    code = (
        "import sys; from lenity.workbench.audit import judge; "
        "from lenity.workbench.rundir import RunDir; "
        "from lenity.workbench.audit_report import audit_report; "
        f"run = RunDir.open({str(recorded)!r}); audit_report(run, judge(run)); "
        "assert 'torch' not in sys.modules, 'torch'; "
        "assert 'transformers' not in sys.modules, 'transformers'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unexplained_divergence_fails_the_run(recorded, tmp_path):
    run = RunDir.open(recorded)
    lines = [record.model_dump_json() for record in run.records()]
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "manifest.json").write_text((recorded / "manifest.json").read_text())
    changed = [
        record.model_copy(update={"token_ids": (9, *record.token_ids[1:])}).model_dump_json()
        if record.arm == "plain"
        else line
        for record, line in zip(run.records(), lines, strict=True)
    ]
    (copy / "records.jsonl").write_text("\n".join(changed) + "\n")
    with pytest.raises(ProtocolError, match="ledger entry, a tie or the batch's shape"):
        judge(RunDir.open(copy))


def test_epsilon_goes_by_the_dtype_unless_stated(recorded):
    run = RunDir.open(recorded)
    assert epsilon_of(run) == 1e-3
    target = run.manifest.provenance.target.model_copy(update={"dtype": "bfloat16"})
    provenance = run.manifest.provenance.model_copy(update={"target": target})
    run.manifest = run.manifest.model_copy(update={"provenance": provenance})
    assert epsilon_of(run) == 0.5


def test_evidence_comes_back(tmp_path, recorded):
    run = RunDir.open(recorded)
    found = {"arm": {("t@1", "q", 0): Evidence(top_ids=(1, 2), gap=0.25, control_ids=(1,))}}
    run.path = tmp_path
    assert read_evidence(run) == {}
    (tmp_path / "evidence.json").write_text(evidence_text(found))
    assert read_evidence(run) == found
