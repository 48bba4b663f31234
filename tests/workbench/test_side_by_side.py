"""Two runs in one table, or a refusal that names what differs."""

import pytest

from lenity.errors import ProtocolError
from lenity.workbench.facts import TargetFacts
from lenity.workbench.intervals import paired_difference_interval
from lenity.workbench.rundir import RunDir
from lenity.workbench.served import SERVED
from lenity.workbench.side_by_side import compare_runs
from tests.workbench.handmade import failed, request, text
from tests.workbench.made import manifest

TARGET = TargetFacts(name="toy", dtype="float32")


def made(path, records, settings=None, **changes):
    own = manifest(settings=settings or {}, **{"target": TARGET, **changes})
    with RunDir.create(path, own) as run:
        run.append(*records)
        run.finish()
    return RunDir.open(path)


def arm(name, scores, kinds="aab", **changes):
    base = {"arm": name, "prompt_ids": (1, 2), "text": "x", **changes}
    return [
        request((kinds, 3), item_id=str(i), score=float(score), **base)
        for i, score in enumerate(scores)
    ]


def rows(report):
    keys = [column.key for column in report.tasks.columns]
    return [dict(zip(keys, row, strict=True)) for row in report.tasks.rows]


def test_arms_of_one_name_are_paired_by_prompt(tmp_path):
    first = made(
        tmp_path / "a",
        [*arm("eos-strict", [1, 1, 0, 1]), *arm("eos-relaxed", [1, 1, 0, 1]), *arm("plain", [1])],
        {"point": {"policy": "strict", "gamma": 5}},
    )
    second = made(
        tmp_path / "b",
        [
            *arm("eos-strict", [1, 1, 0, 1]),
            *arm("eos-relaxed", [1, 0, 0], kinds="axxb"),
            failed(arm="eos-relaxed", item_id="3", prompt_ids=(1, 2)),
        ],
        {"point": {"policy": "asd:budget=8", "gamma": 5}},
    )
    report = compare_runs(first, second)
    strict, relaxed = rows(report)
    assert (strict["arm"], strict["prompts"], strict["equal"]) == ("eos-strict", 4, 1)
    assert strict["gain"].estimate == 0
    assert relaxed["prompts"] == 3
    assert (relaxed["first_score"], relaxed["second_score"]) == (pytest.approx(2 / 3), 1 / 3)
    assert relaxed["score"] == paired_difference_interval([0, -1, 0])
    assert (relaxed["first_passes"], relaxed["second_passes"]) == (3, 4)
    assert relaxed["gain"].estimate == pytest.approx(1 / 3)
    assert relaxed["length"].estimate == pytest.approx(4 / 3)
    assert relaxed["equal"] == 0
    assert report.missing[0].what == "Arm plain"
    assert report.missing[0].why == "only the first run has it"
    assert report.tables[0].rows == (("point.policy", "strict", "asd:budget=8"),)
    assert report.disclosure.run_ids == (first.manifest.run_id, second.manifest.run_id)
    assert report.disclosure.not_comparable == ()
    assert "failed in the second" in report.disclosure.exclusions[0]
    assert len(report.disclosure.failed_samples) == 1


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"template_hash": "u" * 16}, "template_hash"),
        ({"target": TARGET.model_copy(update={"dtype": "bfloat16"})}, "dtype"),
        ({"target": TARGET.model_copy(update={"name": "other"})}, "target"),
        ({"counters_version": 99}, "counters_version"),
    ],
)
def test_what_differs_is_named_and_refused(tmp_path, changes, field):
    records = arm("eos-strict", [1, 1])
    first, second = made(tmp_path / "a", records), made(tmp_path / "b", records, **changes)
    with pytest.raises(ProtocolError, match=rf"got {field}: "):
        compare_runs(first, second)
    forced = compare_runs(first, second, force=True)
    assert [words.split(":")[0] for words in forced.disclosure.not_comparable] == [field]
    assert rows(forced)[0]["prompts"] == 2


def test_another_revision_of_the_target_is_refused(tmp_path):
    one, other = (TARGET.model_copy(update={"revision": r}) for r in ("abc", "def"))
    records = arm("eos-strict", [1, 1])
    first = made(tmp_path / "a", records, target=one)
    with pytest.raises(ProtocolError, match="target_revision: abc and def"):
        compare_runs(first, made(tmp_path / "b", records, target=other))
    unknown = compare_runs(first, made(tmp_path / "c", records))
    assert unknown.disclosure.not_comparable == ()


def test_other_prompts_are_refused_by_the_first_id_that_differs(tmp_path):
    first = made(tmp_path / "a", arm("eos-strict", [1, 1]))
    second = made(tmp_path / "b", arm("eos-strict", [1, 1], prompt_ids=(1, 3)))
    with pytest.raises(ProtocolError, match=r"toy@1 0 at token 1: id 2 and 3"):
        compare_runs(first, second)


def test_several_tasks_have_a_row_each(tmp_path):
    records = [*arm("s", [1, 0]), *arm("s", [1, 1], task="more@1")]
    report = compare_runs(made(tmp_path / "a", records), made(tmp_path / "b", records))
    assert [row["task"] for row in rows(report)] == ["all", "toy@1", "more@1"]
    assert report.tables == ()


def test_a_served_run_is_compared_only_by_force_and_in_words(tmp_path):
    said = [
        text(arm=name, item_id=str(i), text="it is four", score=1.0, prompt_ids=())
        for name in ("baseline", "candidate")
        for i in range(2)
    ]
    served = made(tmp_path / "a", said, {SERVED: {}}, target=TargetFacts(name="toy"))
    own = made(
        tmp_path / "b",
        [*arm("eos-strict", [1, 0]), *arm("eos-relaxed", [1, 1], text="it is four")],
    )
    with pytest.raises(ProtocolError, match="dtype: None and float32"):
        compare_runs(served, own)
    strict, relaxed = rows(compare_runs(served, own, force=True))
    assert (strict["arm"], strict["equal"], relaxed["equal"]) == ("eos-strict", 0, 1)
    assert relaxed["length"].estimate == 1
    assert strict["length"].estimate == pytest.approx(1 / 3)
    assert strict["first_passes"] is None
    assert strict["gain"] is None


def test_nothing_in_common_is_said_so(tmp_path):
    first = made(tmp_path / "a", arm("s", [1, 1]))
    with pytest.raises(ProtocolError, match=r"an arm that both runs have, got s in .*a and r in"):
        compare_runs(first, made(tmp_path / "b", arm("r", [1, 1])))
    other = made(tmp_path / "c", arm("s", [1, 1], task="more@1"))
    with pytest.raises(ProtocolError, match="a prompt that both runs answered"):
        compare_runs(first, other, force=True)
