"""The pages of docs/reproduce say what their summary says, and their commands can be given."""

import json
import re

import pytest
import typer

from lenity.cli.main import app
from lenity.workbench.manifest import begin
from lenity.workbench.matched import Spending
from lenity.workbench.rundir import RunDir
from lenity.workbench.sweep import SweepSettings, steps
from lenity.workbench.trace import TRACES, RequestTrace, TracedRound
from scripts import reproduce_asd, reproduce_asd_replay, reproduce_asd_summary
from scripts.reproduce_asd_plots import plot_knobs, plot_priced
from scripts.reproduce_asd_tables import OURS, PAGES, PAPER, TABLES, filled, gain, table
from tests.workbench.made import provenance, record


def parsed(arguments):
    """What a command line is read as, without running it."""
    command = typer.main.get_command(app).commands[arguments[0]]
    return command.make_context(arguments[0], list(arguments[1:])).params


@pytest.fixture
def chosen(tmp_path):
    """A folder of runs in which every choice is made."""
    for name in ("levels", "high-levels", "thresholds"):
        file = tmp_path / f"traces-{name}.json"
        file.write_text(
            json.dumps({"asd": "asd:budget=2", "none": "strict", "same": "asd:budget=2"})
        )
    (tmp_path / "asd-point.yaml").touch()
    return tmp_path


@pytest.mark.parametrize("name", [name for name in reproduce_asd.PARTS if name != "audit"])
def test_the_command_of_a_part_records_the_same(name, chosen):
    asked = parsed(reproduce_asd.command(name, chosen))
    own = reproduce_asd.settings(name, chosen)
    assert asked["folder"] == chosen / name
    assert (asked["model"], asked["dtype"]) == ("demo:smollm2", "bfloat16")
    said = SweepSettings(
        preset=asked["preset"],
        questions={"tasks": asked["tasks"], "num_prompts": asked["prompts"]},
        drafter=asked["drafter"],
        policy=asked["policy"],
        gamma=asked["gamma"],
        values=tuple(asked["value"] or ()),
        divergence=asked["divergence"],
        batch_size=asked["batch_size"],
        natural={"max_new_tokens": asked["max_new_tokens"]},
    )
    assert said == own
    assert steps(own)[0].arm.policy == "strict"


def test_the_command_of_the_audit_records_the_same(chosen):
    asked = parsed(reproduce_asd.command("audit", chosen))
    audit = reproduce_asd.AUDIT
    assert asked["point"] == chosen / "asd-point.yaml"
    assert tuple(asked["tasks"]) == audit.questions.tasks
    assert asked["prompts"] == audit.questions.num_prompts
    assert (asked["work_prompts"], asked["repeats"]) == (audit.work_prompts, audit.fixed.repeats)
    assert asked["work_tokens"] == audit.fixed.new_tokens
    assert asked["max_new_tokens"] == audit.natural.max_new_tokens


def test_a_part_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SystemExit, match="No part 'gates'; there are traces, priced, gate"):
        reproduce_asd.command("gates", tmp_path)


def test_a_choice_without_traces_says_what_to_run(tmp_path):
    with pytest.raises(SystemExit, match="run the part traces first"):
        reproduce_asd.settings("priced", tmp_path)


def trace(family, index, regret, *, rounds=12):
    """Rounds of seven draft tokens, of which the first is a mismatch."""
    rest = 6
    one = {
        "draft_ids": (5, *[6] * rest),
        "top_ids": (4, *[6] * rest, 7),
        "top_logit": (9.0,) * 8,
        "draft_logit": (9.0 - regret, *[9.0] * rest),
        "regret": (regret, *[0.0] * rest),
        "second_logit": (9.0 - regret, *[1.0] * 7),
        "draft_rank": (1, *[0] * rest),
        "divergence": {
            name: (regret / 10, *[0.0] * rest) for name in ("kl", "reverse_kl", "js", "tv")
        },
        "accepted": 0,
        "emitted": 1,
    }
    return RequestTrace(
        arm="strict",
        task="own_prompts@1",
        item_id=f"own_prompts/{family}/{index}",
        policy="strict",
        drafter="toy",
        gamma=7,
        prompt_length=3,
        rounds=tuple(TracedRound(start=3 + i, **one) for i in range(rounds)),
    )


@pytest.fixture
def traced(tmp_path):
    """A run of strict traces: four families, mismatches of 0.1 to 0.4 nats."""
    families = reproduce_asd.FAMILIES
    rows = [trace(f, i, 0.1 + 0.1 * (i % 4)) for i in range(8) for f in families]
    folder = tmp_path / "traces"
    folder.mkdir()
    (folder / TRACES).write_text("".join(row.model_dump_json() + "\n" for row in rows))
    return folder


def test_knobs_are_read_off_the_traces(traced):
    found = reproduce_asd_replay.knobs(traced)
    assert found["budget"]["0"]["all"]["gain"] == [0.0, 0.0, 0.0]
    assert found["budget"]["64"]["maths"]["tokens_per_pass"] == 8.0  # the drafts and the bonus
    gains = [groups["all"]["gain"][0] for groups in found["budget"].values()]
    assert gains == sorted(gains)
    assert found["gate"]["0.05"]["all"]["coverage"] == 0.75  # 0.3 nats over seven, not 0.4
    assert found["gamma"]["2"]["all"]["tokens_per_pass"] == 3.0


def test_a_local_rule_is_tuned_to_the_dearest_request(traced):
    row = reproduce_asd_replay.local_rules(traced)[0]
    assert row["asd"]["spec"] == "asd:budget=2,gate=0.25,block_cap=2"
    for name, found in row["rules"].items():
        assert found["max_regret"] <= row["asd"]["max_regret"] + 1e-9, name


def test_settings_that_spend_alike_are_chosen_once(traced, tmp_path):
    found = reproduce_asd.levels(tmp_path, "traces")
    assert list(found) == ["asd at 1.5", "asd at 5", "priced at 1.5", "priced at 5"]
    curve = reproduce_asd.spending(reproduce_asd.strict_traces(traced, 48), list(found.values()))
    assert (curve.mean_regret[1:] <= [1.03 * 1.5, 1.03 * 5.0] * 2).all()
    file = tmp_path / "traces-levels.json"
    file.write_text(json.dumps({"asd at 1.5": "asd:budget=1"}))
    assert reproduce_asd.levels(tmp_path, "traces") == {"asd at 1.5": "asd:budget=1"}


def test_traces_are_cut_at_whole_rounds():
    cut = reproduce_asd.cut(trace("maths", 0, 0.1), 5)
    assert cut.num_emitted == 5


def test_a_sweep_is_told_by_arm_and_family(tmp_path):
    run = RunDir.create(tmp_path / "gate", begin("sweep", {}, provenance()))
    for arm in ("strict", "asd-gate-0.25"):
        for family in ("maths", "code"):
            for index in range(3):
                item = f"own_prompts/{family}/{index}"
                run.append(record(item, arm, token_ids=(3, 4 + (arm != "strict" and index == 0))))
    run.close()
    arms = reproduce_asd_summary.arms_of(tmp_path / "gate")
    found = reproduce_asd_summary.by_family(arms)
    assert list(found["strict"]) == ["all", "maths", "code"]
    assert found["asd-gate-0.25"]["all"]["differs"] == pytest.approx(1 / 3, abs=1e-4)
    assert found["asd-gate-0.25"]["all"]["gain"] == [0.0, 0.0, 0.0]
    assert found["asd-gate-0.25"]["all"]["score"] is None
    made = filled("<!-- table live-gate -->\n<!-- end -->", {"arms": {"gate": found}})
    assert "| `asd-gate-0.25` | 1.00 | +0.0 [+0.0, +0.0] | +0.0 | +0.0 | 0.00 |" in made


def test_a_gamma_sweep_has_a_strict_arm_a_gamma():
    arms = ("strict-2", "asd-2", "strict-7", "asd-7")
    assert [reproduce_asd_summary.reference(arm, arms) for arm in arms] == [
        "strict-2",
        "strict-2",
        "strict-7",
        "strict-7",
    ]
    assert reproduce_asd_summary.reference("asd-gate-2", ("strict", "asd-gate-2")) == "strict"


def test_prompts_that_settings_were_chosen_on_are_told_apart(tmp_path):
    run = RunDir.create(tmp_path / "traces", begin("sweep", {}, provenance()))
    run.append(record("own_prompts/maths/7", "strict", prompt_ids=(1, 2)))
    run.close()
    strict = [
        record("own_prompts/maths/1", "strict", prompt_ids=(1, 2)),  # the same under another id
        record("own_prompts/maths/7", "strict", prompt_ids=(1, 3)),
    ]
    measured = Spending.of_records({"strict": strict})
    found = reproduce_asd_summary.is_new(measured, strict, tmp_path / "traces")
    assert found.tolist() == [False, True]


def test_tables_are_put_in_their_places():
    text = "a\n<!-- table local -->\nold\n<!-- end -->\nb\n<!-- table other -->\nkept\n<!-- end -->"
    made = filled(text, {})
    assert "*Not run: local.*" in made
    assert "old" not in made
    assert made.endswith("kept\n<!-- end -->")
    assert filled(made, {}) == made


def test_cells():
    assert table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
    assert gain([0.1234, -0.01, 0.25]) == "+12.3 [-1.0, +25.0]"


def test_plots_are_the_same_bytes_for_the_same_numbers(tmp_path):
    summary = json.loads((PAGES / "asd.json").read_text(encoding="utf-8"))
    for draw in (
        lambda file: plot_priced(summary, file),
        lambda file: plot_knobs(summary["knobs"], PAPER, file),
    ):
        files = [tmp_path / name for name in ("a.svg", "b.svg")]
        for file in files:
            draw(file)
        assert files[0].read_bytes() == files[1].read_bytes()
        assert len(files[0].read_bytes()) < 100_000


@pytest.mark.parametrize("page", OURS)
def test_a_page_says_what_the_summary_says(page):
    text = (PAGES / page).read_text(encoding="utf-8")
    summary = json.loads((PAGES / "asd.json").read_text(encoding="utf-8"))
    assert filled(text, summary) == text
    names = re.findall(r"<!-- table (\S+) -->", text)
    assert not set(names) - set(TABLES)
