import json
import math

import pytest

from lenity.errors import RunDirError
from lenity.workbench.manifest import (
    MANIFEST,
    Manifest,
    begin,
    check_same,
    first_difference,
    parse,
    read_manifest,
    read_settings,
)
from lenity.workbench.operating_point import OperatingPoint
from lenity.workbench.provenance import Hardware
from tests.workbench.made import manifest, provenance


def test_a_manifest_reads_back_as_it_was(tmp_path):
    made = manifest(settings={"budget": math.inf, "arms": ["a"], "none": None})
    (tmp_path / MANIFEST).write_text(made.model_dump_json())
    assert read_manifest(tmp_path) == made
    assert made.run_id.startswith("audit-2")
    assert made.run_id != manifest().run_id


def test_the_first_setting_that_differs_is_named_with_its_path():
    mine = {"a": 1, "b": {"c": [1], "d": {"e": 2}}}
    assert first_difference(mine, {**mine}) is None
    assert first_difference(mine, {"a": 1, "b": {"c": [1], "d": {"e": 3}}}) == ("b.d.e", 2, 3)
    assert first_difference(mine, {"a": 1, "b": {"c": [1]}}) == ("b.d", {"e": 2}, None)
    assert first_difference({}, {"z": 0}) == ("z", None, 0)


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (manifest(kind="tune"), "kind='audit'"),
        (manifest(settings={"gamma": 4}), "gamma=5.*got one with 4"),
        (manifest(settings={"gamma": 5, "more": True}), "more=None"),
        (manifest(template_hash="u"), "template_hash='t+'"),
        (manifest(target={"name": "m", "dtype": "bfloat16"}), "target=None"),
    ],
)
def test_another_run_is_refused_by_what_differs(tmp_path, other, named):
    with pytest.raises(RunDirError, match=named):
        check_same(tmp_path, found=other, mine=manifest())


def test_another_machine_or_command_may_go_on_with_a_run(tmp_path):
    elsewhere = provenance(hardware=Hardware(cpu="slate", cores=1), argv=("lenity", "x"))
    check_same(tmp_path, found=begin("audit", {"gamma": 5}, elsewhere), mine=manifest())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "expected JSON, got '{'.*damaged"),
        ("[]", r"expected an object, got \[\].*damaged"),
        ('{"kind": "audit"}', "needs the field run_id.*damaged"),
        ('{"kind": "oddit"}', "kind: expected .*'audit'.*, got 'oddit'.*damaged"),
        ('{"schema_version": 99}', "schema version 1 or older.*got 99.*newer"),
    ],
)
def test_what_is_no_manifest_is_refused(tmp_path, text, says):
    with pytest.raises(RunDirError, match="(?s)" + says):
        parse(Manifest, text, "here", 1)
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(RunDirError, match=r"manifest\.json"):
        read_manifest(tmp_path)


def test_a_setting_of_the_future_is_refused(tmp_path):
    text = json.dumps({**json.loads(manifest().model_dump_json()), "novel": 1})
    with pytest.raises(RunDirError, match="novel"):
        parse(Manifest, text, "here", 1)


def test_a_folder_without_one_is_no_run(tmp_path):
    with pytest.raises(RunDirError, match="run directory"):
        read_manifest(tmp_path)
    with pytest.raises(RunDirError, match="does not exist"):
        read_manifest(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("stored", "told"),
    [
        ({}, r"manifest\.json needs the field settings\.point"),
        ({"point": 3}, r"manifest\.json: settings\.point: expected .* got 3"),
        ({"point": {"target": {"name": "t"}, "gamma": -1}}, "gamma: expected at least 0, got -1"),
        ({"point": {"target": {"name": "t"}, "gama": 1}}, "gama: .*Did you mean 'gamma'"),
    ],
)
def test_settings_of_another_lenity_are_refused_by_their_field(tmp_path, stored, told):
    made = manifest(settings=stored)
    with pytest.raises(RunDirError, match=f"{told}.*Lenity 0 wrote the run"):
        read_settings(made, tmp_path, "point", OperatingPoint)
    right = manifest(settings={"point": {"target": {"name": "t"}}})
    assert read_settings(right, tmp_path, "point", OperatingPoint).target.name == "t"
