import subprocess
import sys

import pytest

from lenity.errors import RunDirError
from lenity.workbench.provenance import Hardware
from lenity.workbench.rundir import LOCK, RECORDS, RunDir
from tests.workbench.made import manifest, record


def test_records_come_back_in_order_and_lazily(tmp_path):
    with RunDir.create(tmp_path / "run", manifest()) as run:
        made = [record(str(i), arm=arm) for i in range(3) for arm in ("strict-a", "relaxed")]
        run.append(*made[:4])
        run.append()
        run.append(*made[4:])
        assert list(run.records()) == made
    reader = RunDir.open(tmp_path / "run")
    assert list(reader.records()) == made
    assert list(reader.records("relaxed")) == made[1::2]
    assert list(reader.records(where=lambda r: r.item_id == "2")) == made[4:]
    stream = reader.records()
    assert next(stream) == made[0]
    (tmp_path / "run" / RECORDS).write_text("")  # the rest was never read
    assert reader.keys == frozenset()


def test_a_run_resumes_behind_its_last_whole_line(tmp_path):
    run = RunDir.create(tmp_path, manifest())
    run.append(record("1"), record("2"))
    run.close()
    whole = (tmp_path / RECORDS).read_bytes()
    (tmp_path / RECORDS).write_bytes(whole + record("3").model_dump_json().encode()[:-1])
    assert [r.item_id for r in RunDir.open(tmp_path).records()] == ["1", "2"]
    again = RunDir.create(tmp_path, manifest())
    assert (tmp_path / RECORDS).read_bytes() == whole
    assert record("2").key in again
    assert record("3").key not in again
    again.append(record("3"))
    assert [r.item_id for r in again.records()] == ["1", "2", "3"]
    assert len(again.manifest.resumed) == 1
    assert again.manifest.run_id == run.manifest.run_id
    again.close()


def test_a_torn_line_counts_only_with_its_newline(tmp_path):
    with RunDir.create(tmp_path, manifest()) as run:
        run.append(record("1"))
    (tmp_path / RECORDS).write_bytes((tmp_path / RECORDS).read_bytes()[:-1])
    assert list(RunDir.open(tmp_path).records()) == []
    with RunDir.create(tmp_path, manifest()) as run:
        run.append(record("1"))
        assert len(list(run.records())) == 1


@pytest.mark.parametrize("again", [(record("2"), record("1")), (record("2"), record("2"))])
def test_a_key_is_recorded_once_or_nothing_is(tmp_path, again):
    with RunDir.create(tmp_path, manifest()) as run:
        run.append(record("1"))
        with pytest.raises(RunDirError, match=r"arm relaxed, repeat 0, toy@1 \d again"):
            run.append(*again)
        assert [r.item_id for r in run.records()] == ["1"]
        run.append(record("1", repeat=1), record("1", arm="strict"), record("1", task="toy@2"))


def test_a_failed_sample_is_recorded_as_failed(tmp_path):
    failed = record("1", status="failed", error="boom", token_ids=(), kinds="", rounds=())
    with RunDir.create(tmp_path, manifest()) as run:
        run.append(failed)
    with RunDir.create(tmp_path, manifest()) as run:
        assert list(run.records()) == [failed]
        assert failed.key in run


def test_a_damaged_line_is_named(tmp_path):
    with RunDir.create(tmp_path, manifest()) as run:
        run.append(record("1"), record("2"))
    text = (tmp_path / RECORDS).read_text().splitlines()
    (tmp_path / RECORDS).write_text(text[0][:-9] + "\n" + text[1] + "\n")
    with pytest.raises(RunDirError, match=r"line 1.*damaged"):
        list(RunDir.open(tmp_path).records())
    newer = text[0].replace('"schema_version":2', '"schema_version":3').replace("kinds", "kynds")
    (tmp_path / RECORDS).write_text(newer + "\n")
    with pytest.raises(RunDirError, match=r"schema version 2 or older.*got 3"):
        list(RunDir.open(tmp_path).records())


def test_every_line_says_its_version(tmp_path):
    """A default is no version: a later one would read it as its own."""
    with RunDir.create(tmp_path, manifest()) as run:
        run.append(record("1"))
    assert '"schema_version":2' in (tmp_path / RECORDS).read_text()


def test_lines_of_the_version_before_are_read(tmp_path):
    with RunDir.create(tmp_path, manifest()) as run:
        run.append(record("1", family="copying"))
    now = (tmp_path / RECORDS).read_text()
    before = now.replace('"schema_version":2', '"schema_version":1').replace(
        '"family":"copying",', ""
    )
    assert before != now
    (tmp_path / RECORDS).write_text(before)
    (line,) = RunDir.open(tmp_path).records()
    assert (line.schema_version, line.family) == (1, None)


def test_a_finished_run_never_changes(tmp_path):
    path = tmp_path / "run"
    run = RunDir.create(path, manifest())
    run.append(record("1"))
    run.write_artefact("tables/all.csv", "a,b\n")
    run.finish({"strict-b": 2})
    assert run.is_finished
    assert run.manifest.missing == {"strict-b": 2}
    for name in ("manifest.json", RECORDS, "tables/all.csv"):
        assert (path / name).stat().st_mode & 0o222 == 0
    again = RunDir.create(path, manifest())  # the same settings: for reading
    assert [r.item_id for r in again.records()] == ["1"]
    for change in (
        lambda: again.append(record("2")),
        lambda: again.write_artefact("x", ""),
        lambda: again.log_artefact("x"),
        again.pause,
        again.finish,
        lambda: run.append(record("2")),
    ):
        with pytest.raises(RunDirError, match="finished and cannot change"):
            change()
    with pytest.raises(RunDirError, match="gamma=3"):
        RunDir.create(path, manifest(settings={"gamma": 3}))
    assert run.files() == (RECORDS, "tables/all.csv")


def test_what_was_changed_after_the_end_is_noticed(tmp_path):
    run = RunDir.create(tmp_path, manifest())
    run.append(record("1"))
    run.write_artefact("summary.json", "{}")
    run.finish()
    reader = RunDir.open(tmp_path)
    reader.verify()
    assert set(reader.manifest.files) == {RECORDS, "summary.json"}
    (tmp_path / "summary.json").chmod(0o644)
    (tmp_path / "summary.json").write_text("{ }")
    with pytest.raises(RunDirError, match=r"summary\.json as the run left it"):
        reader.verify()
    (tmp_path / "summary.json").unlink()
    with pytest.raises(RunDirError, match="no such file"):
        reader.verify()


def test_a_run_for_reading_is_not_written_to(tmp_path):
    RunDir.create(tmp_path, manifest()).close()
    with pytest.raises(RunDirError, match="reading only"):
        RunDir.open(tmp_path).append(record("1"))


def test_a_paused_run_says_what_is_missing_until_it_is_there(tmp_path):
    run = RunDir.create(tmp_path, manifest())
    run.append(record("1"))
    run.pause({"relaxed": 3})
    assert RunDir.open(tmp_path).manifest.missing == {"relaxed": 3}
    again = RunDir.create(tmp_path, manifest())
    again.append(record("2"))
    again.finish()
    assert RunDir.open(tmp_path).manifest.missing == {}


def test_the_parts_of_a_run_know_their_machines(tmp_path):
    RunDir.create(tmp_path, manifest()).close()
    with RunDir.create(tmp_path, manifest()) as run:
        assert run.manifest.is_one_machine
    with RunDir.create(tmp_path, manifest(hardware=Hardware(cpu="slate", cores=1))) as run:
        assert not run.manifest.is_one_machine
        assert [p.provenance.hardware.cpu for p in run.manifest.resumed] == ["abacus", "slate"]


def test_one_process_writes_at_a_time(tmp_path):
    run = RunDir.create(tmp_path, manifest())
    with pytest.raises(RunDirError, match=r"process \d+ is"):
        RunDir.create(tmp_path, manifest())
    run.append(record("1"))  # the refusal did no harm
    run.close()
    RunDir.create(tmp_path, manifest()).close()


def test_another_process_is_refused_too_and_a_dead_one_is_not_waited_for(tmp_path):
    """No torch: the child takes the lock and dies with it."""
    code = (
        "import sys, os\n"
        "from pathlib import Path\n"
        "from lenity.workbench.rundir import RunDir\n"
        "from lenity.workbench.manifest import Manifest\n"
        "made = Manifest.model_validate_json(sys.argv[2])\n"
        "try:\n"
        "    run = RunDir.create(sys.argv[1], made)\n"
        "except Exception as error:\n"
        "    sys.exit(str(error))\n"
        "assert 'torch' not in sys.modules, 'reading runs needs no torch'\n"
        "os.kill(os.getpid(), 9)\n"
    )

    def child():
        command = [sys.executable, "-c", code, str(tmp_path), manifest().model_dump_json()]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    with RunDir.create(tmp_path, manifest()):
        done = child()
        assert done.returncode == 1
        assert "nobody else" in done.stderr
    assert child().returncode == -9
    assert (tmp_path / LOCK).is_file()
    RunDir.create(tmp_path, manifest()).close()


def test_a_foreign_folder_is_left_alone(tmp_path):
    (tmp_path / "holiday.jpg").write_bytes(b"")
    with pytest.raises(RunDirError, match=r"holiday\.jpg"):
        RunDir.create(tmp_path, manifest())
    with pytest.raises(RunDirError, match="got the file"):
        RunDir.create(tmp_path / "holiday.jpg", manifest())
    assert [p.name for p in tmp_path.iterdir()] == ["holiday.jpg"]
    with pytest.raises(RunDirError, match=r"Expected a folder for the run.*holiday\.jpg"):
        RunDir.create(tmp_path / "holiday.jpg" / "run", manifest())


def test_other_settings_do_not_touch_a_run(tmp_path):
    RunDir.create(tmp_path, manifest()).close()
    before = (tmp_path / "manifest.json").read_bytes()
    with pytest.raises(RunDirError, match=r"gamma=6 in .*, got one with 5"):
        RunDir.create(tmp_path, manifest(settings={"gamma": 6}))
    assert (tmp_path / "manifest.json").read_bytes() == before
    RunDir.create(tmp_path, manifest()).close()  # and the lock was let go


def test_artefacts_are_whole_and_stay_inside(tmp_path):
    with RunDir.create(tmp_path / "run", manifest()) as run:
        path = run.write_artefact("report.html", "<p>")
        assert run.write_artefact("report.html", b"<p>again").read_bytes() == b"<p>again"
        assert run.artefact("report.html") == path
        with run.log_artefact("traces/strict.jsonl") as log:
            log.append(["{}"])
        assert run.files() == (RECORDS, "report.html", "traces/strict.jsonl")
        for name in ("../x", "/etc/x", "manifest.json", RECORDS, ".lock", "traces", ""):
            with pytest.raises(RunDirError, match="inside the run"):
                run.write_artefact(name, "")
        with pytest.raises(RunDirError, match=r"got no such file.*report\.html"):
            run.artefact("summary.json")


def test_a_run_killed_before_it_had_a_manifest_can_be_begun_again(tmp_path):
    (tmp_path / LOCK).write_text("1")
    (tmp_path / ".manifest.json.partial").write_text('{"sch')
    with RunDir.create(tmp_path, manifest()) as run:
        run.append(record("1"))
        assert run.files() == (RECORDS,)
