"""Arms that were not asked the same thing are not compared.

Seen in dflash#133 (acceptance from 25 to 60 % by another switch of the chat template) and EAGLE#5
(a template chosen by a part of the model's name).
"""

from typing import ClassVar

import pytest
from typer.testing import CliRunner

from lenity.cli.main import app
from lenity.errors import ProtocolError, RunDirError
from lenity.tasks.base import Item, Task, user
from lenity.tasks.chat import RenderOptions
from lenity.workbench.arms import Arms
from lenity.workbench.comparable import ArmIdentity, check_comparable, prompts_of
from lenity.workbench.config import Arm, NaturalEos
from lenity.workbench.facts import target_facts
from lenity.workbench.jobs import make_jobs, prompts_digest
from lenity.workbench.manifest import begin
from lenity.workbench.protocols import natural_eos
from lenity.workbench.provenance import collect
from lenity.workbench.rundir import RunDir
from tests.cases.rig import target
from tests.tasks.test_chat import ids, tokenizer


class Ask(Task):
    type: str = "ask"
    has_scorer: ClassVar[bool] = False
    max_new_tokens: int = 3


ITEMS = [Item(id="1", messages=(user("hi there"),)), Item(id="2", messages=(user("be kind"),))]
FAST = RenderOptions(enable_thinking=False)


def recorded(path, options):
    """A run of one arm, with prompts rendered so."""
    jobs, template = make_jobs(Ask(), ITEMS, tokenizer(), options)
    provenance = collect(target=target_facts(target()), template_hash=template, argv=())
    made = begin("audit", {"prompts": prompts_digest(jobs)}, provenance)
    with RunDir.create(path, made) as run:
        arms = Arms(target(), [Arm(name="plain", gamma=0)])
        assert natural_eos(arms, jobs, NaturalEos(), run).is_complete
        run.finish()
    return RunDir.open(path)


def compare(left, right, **options):
    sides = []
    for run in (left, right):
        records = list(run.records())
        sides.append((ArmIdentity.of(run.manifest.provenance, records), prompts_of(records)))
    (ours, our_prompts), (theirs, their_prompts) = sides
    return check_comparable(ours, theirs, our_prompts, their_prompts, **options)


@pytest.mark.parametrize(
    ("options", "position", "got"),
    [
        (FAST, 4, ("no token", ids("fast")[0])),
        (RenderOptions(add_generation_prompt=False), 3, (ids("assistant")[0], "no token")),
        (RenderOptions(system="low"), 0, (ids("user")[0], ids("system")[0])),
    ],
    ids=["thinking", "generation prompt", "system"],
)
def test_another_template_is_refused_by_hash_and_first_id(tmp_path, options, position, got):
    left, right = recorded(tmp_path / "a", RenderOptions()), recorded(tmp_path / "b", options)
    hashes = [run.manifest.provenance.template_hash for run in (left, right)]
    says = (
        rf"(?s)template_hash: {hashes[0]} and {hashes[1]}.*"
        rf"ask@1 1 at token {position}: id {got[0]} and {got[1]}"
    )
    with pytest.raises(ProtocolError, match=says):
        compare(left, right)
    forced = compare(left, right, force=True)  # and the report is marked "not comparable"
    assert [d.field for d in forced] == ["template_hash", "prompt_ids_hash"]


def test_the_command_line_refuses_and_marks_what_is_forced(tmp_path):
    left = recorded(tmp_path / "a", RenderOptions())
    right = recorded(tmp_path / "b", FAST)
    words = ["report", str(left.path), "--against", str(right.path), "--to", str(tmp_path / "out")]
    refused = CliRunner().invoke(app, words, catch_exceptions=False)
    assert refused.exit_code == 2
    told = " ".join(refused.stderr.split())
    for run in (left, right):
        assert run.manifest.provenance.template_hash in told
    assert f"ask@1 1 at token 4: id no token and {ids('fast')[0]}" in told
    assert not (tmp_path / "out").exists()
    forced = CliRunner().invoke(app, [*words, "--force"], catch_exceptions=False)
    assert forced.exit_code == 0
    assert "Not comparable: template_hash" in forced.stdout
    assert "<h2>Not comparable</h2>" in (tmp_path / "out" / "report.html").read_text()


def test_the_same_template_is_compared(tmp_path):
    left, right = recorded(tmp_path / "a", FAST), recorded(tmp_path / "b", FAST)
    assert compare(left, right) == ()
    assert {r.prompt_ids for r in left.records()} == {
        ids("user hi there assistant fast"),
        ids("user be kind assistant fast"),
    }


def test_a_run_is_not_gone_on_with_under_another_template(tmp_path):
    recorded(tmp_path, RenderOptions())
    with pytest.raises(RunDirError, match=r"prompts=|template_hash="):
        recorded(tmp_path, FAST)
