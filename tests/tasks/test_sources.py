import gzip
import hashlib
import json

import pytest

from lenity.errors import ConfigError
from lenity.tasks.sources import ENVIRONMENT, Hub, Table, hash_text, read_jsonl, read_rows

TABLE = Table(files=("rows.jsonl", "rows/test.jsonl"), hub=Hub(name="org/rows"))


def write(file, text):
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def test_a_file_given_or_found_by_name(tmp_path, monkeypatch):
    file = write(tmp_path / "rows.jsonl", '{"a": 1}\n\n{"a": 2}\n')
    assert read_rows(TABLE, file).rows == read_rows(TABLE, tmp_path).rows == [{"a": 1}, {"a": 2}]
    assert read_rows(TABLE, str(tmp_path)).origin == "rows.jsonl"
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path))
    assert read_rows(TABLE).rows == [{"a": 1}, {"a": 2}]


def test_the_folder_given_comes_before_the_environments(tmp_path, monkeypatch):
    write(tmp_path / "rows" / "test.jsonl", '{"from": "given"}')
    other = write(tmp_path / "other" / "rows.jsonl", '{"from": "environment"}').parent
    monkeypatch.setenv(ENVIRONMENT, str(other))
    assert read_rows(TABLE, tmp_path).rows == [{"from": "given"}]
    assert read_rows(Table(files=("rows.jsonl",)), tmp_path).rows == [{"from": "environment"}]


def test_the_revision_of_a_file_is_its_hash(tmp_path):
    file = write(tmp_path / "rows.jsonl", '{"a": 1}\n')
    revision = hashlib.sha256(b'{"a": 1}\n').hexdigest()
    assert read_rows(TABLE, file).revision == f"sha256:{revision}"


def test_gzip_byte_order_marks_and_odd_line_ends(tmp_path):
    packed = tmp_path / "rows.jsonl.gz"
    packed.write_bytes(gzip.compress('\ufeff{"a": "x\u2028y"}\r\n{"a": 2}'.encode()))
    assert read_jsonl(packed).rows == [{"a": "x\u2028y"}, {"a": 2}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "one JSON object a line"),
        ("{", r"rows.jsonl, line 1: expected JSON, got '\{'"),
        ('{"a": 1}\n[1]', "line 2: expected a JSON object"),
    ],
)
def test_what_is_no_jsonl_is_refused_with_its_line(tmp_path, text, said):
    with pytest.raises(ConfigError, match=said):
        read_jsonl(write(tmp_path / "rows.jsonl", text))


def test_undecodable_bytes_are_refused(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(ConfigError, match="readable UTF-8"):
        read_jsonl(file)


def test_a_place_that_is_not_there_is_refused(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"as the data given, got .*nowhere"):
        read_rows(TABLE, tmp_path / "nowhere")
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "gone"))
    with pytest.raises(ConfigError, match=f"as {ENVIRONMENT}, got .*gone"):
        read_rows(TABLE)


def test_with_neither_file_nor_hub_both_ways_are_told(tmp_path):
    # offline (see tests/conftest.py), or without the package: both end here
    with pytest.raises(ConfigError) as raised:
        read_rows(TABLE, tmp_path)
    said = str(raised.value)
    assert "none of rows.jsonl, rows/test.jsonl is in" in said
    assert "org/rows" in said
    assert "put one of rows.jsonl" in said
    with pytest.raises(ConfigError, match=f"no folder of data was named .*{ENVIRONMENT}"):
        read_rows(TABLE)


def test_a_table_no_hub_has_says_so(tmp_path):
    bare = Table(files=("rows.jsonl",))
    with pytest.raises(ConfigError, match="no dataset of a hub has it"):
        read_rows(bare, tmp_path)
    with pytest.raises(ConfigError, match="a revision of a dataset was asked for"):
        read_rows(bare, tmp_path, "v1")


def test_a_dataset_is_read_with_its_revision(tmp_path):
    """A local folder stands in for the hub: the same call, the same rows."""
    pytest.importorskip("datasets", reason='needs the extra "tasks"')
    write(tmp_path / "set" / "test.jsonl", '{"a": 1, "b": "x"}\n{"a": 2, "b": "y"}\n')
    hub = Table(files=("rows.jsonl",), hub=Hub(name=str(tmp_path / "set")))
    rows = read_rows(hub, None, "v1")
    assert rows.rows == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    content = "\n".join(json.dumps(row, sort_keys=True) for row in rows.rows)
    digest = hashlib.sha256(content.encode()).hexdigest()
    assert rows.revision == f"hub:v1,rows:{digest}"
    assert rows.origin == f"{tmp_path / 'set'}:test"


def test_a_texts_hash_has_16_digits():
    assert hash_text("a") == hashlib.sha256(b"a").hexdigest()[:16]
