import dataclasses
import multiprocessing
import os
import time
from pathlib import Path

import pytest

from lenity.errors import ConfigError, MissingExtraError
from lenity.models.packaged import SMOLLM2, cache_dir, converted


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LENITY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


def slow_convert(into: Path) -> None:
    """Write two files with a pause between them, and a note of who did it."""
    (into / "config.json").write_text("{}")
    time.sleep(0.2)
    (into / "model.safetensors").write_text("weights")
    with Path(os.environ["LENITY_CACHE"], "conversions").open("a") as log:
        log.write("x")


def convert_and_die(into: Path) -> None:
    (into / "config.json").write_text("{")
    os._exit(9)


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LENITY_CACHE", "~/own")
    assert cache_dir() == Path.home() / "own"
    monkeypatch.delenv("LENITY_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_dir() == Path("/xdg/lenity")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_dir() == Path.home() / ".cache" / "lenity"


def test_a_conversion_happens_once(cache: Path):
    assert converted("key", slow_convert) == cache / "key"
    assert converted("key", convert_and_die) == cache / "key"
    assert sorted(file.name for file in (cache / "key").iterdir()) == [
        "config.json",
        "model.safetensors",
    ]


def test_a_killed_first_run_leaves_nothing_that_looks_whole(cache: Path):
    context = multiprocessing.get_context("fork")
    process = context.Process(target=converted, args=("key", convert_and_die))
    process.start()
    process.join(10)
    assert process.exitcode == 9
    assert not (cache / "key").exists()
    assert len(list(cache.glob("key.tmp-*"))) == 1
    converted("key", slow_convert)
    assert (cache / "key" / "model.safetensors").read_text() == "weights"
    assert not list(cache.glob("key.tmp-*"))


def test_two_processes_convert_once(cache: Path):
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=converted, args=("key", slow_convert)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(10)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert (cache.parent / "conversions").read_text() == "x"
    assert (cache / "key" / "model.safetensors").read_text() == "weights"


def test_a_failed_conversion_cleans_up_and_may_be_tried_again(cache: Path):
    def fail(into: Path) -> None:
        raise RuntimeError("damaged GGUF")

    with pytest.raises(RuntimeError, match="damaged GGUF"):
        converted("key", fail)
    assert [file.name for file in cache.iterdir()] == ["key.lock"]
    converted("key", slow_convert)


def test_a_cache_that_cannot_be_written_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("LENITY_CACHE", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match="Set LENITY_CACHE to a folder"):
        converted("key", slow_convert)


def test_a_missing_package_names_the_extra():
    absent = dataclasses.replace(SMOLLM2, package="no_such_package")
    with pytest.raises(MissingExtraError, match=r"pip install 'lenity\[demo\]'"):
        absent.directory()


def test_a_package_is_found_without_importing_it(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    package = tmp_path / "site" / "some_model"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('imported')")
    (package / "weights.gguf").write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setattr(
        "lenity.models.packaged.convert_gguf",
        lambda file, into: (into / "made-from").write_text(file.name),
    )
    model = dataclasses.replace(SMOLLM2, name="demo:some", package="some_model")
    folder = model.directory()
    assert (folder / "made-from").read_text() == "weights.gguf"
    assert folder.name.startswith("demo-some-")
    (package / "weights.gguf").write_bytes(b"GGVF")  # other weights are another conversion
    assert model.directory() != folder


def test_conversion_without_its_tools_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("lenity.models.packaged.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="gguf and accelerate"):
        SMOLLM2._convert(tmp_path / "x.gguf", tmp_path)


def test_a_cache_in_nobodys_home_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LENITY_CACHE", "~nouser/cache")
    with pytest.raises(ConfigError, match="a home here, got '~nouser/cache'"):
        cache_dir()
