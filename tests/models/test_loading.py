import subprocess
import sys
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from huggingface_hub.errors import LocalEntryNotFoundError
from torch import nn
from transformers.utils import logging

import lenity.models
from lenity.errors import ConfigError, ModelMismatchError, OutOfMemoryError, RegistryError
from lenity.models.causal import CausalLM
from lenity.models.loading import (
    MODELS,
    _cannot_load,
    _move,
    as_device,
    as_dtype,
    check_safetensors,
    load,
)
from tests.models.families import build, build_fresh, plain_logits
from tests.models.test_tokenizers import TEMPLATE, WORDS, words


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "tiny"
    build("llama").save_pretrained(path)
    words(WORDS, chat_template=TEMPLATE).tokenizer.save_pretrained(path)
    return path


def test_a_folder_comes_back_as_it_was_saved(folder: Path):
    model = load(str(folder), device="cpu")
    ids = [3, 4, 5, 6]
    states = model.hidden_states(torch.tensor([ids]), model.new_cache(1))
    torch.testing.assert_close(model.logits(states.last)[0], plain_logits(build("llama"), ids))
    assert model.name == str(folder)
    assert model.dtype == torch.float32
    assert model.tokenizer is not None
    assert model.tokenizer.encode_chat([{"role": "user", "content": "w1"}]) == [2, 4, 2]
    assert model.unknown_ids.tolist() == list(range(64, 96))


def test_dtype_and_attention_can_be_chosen(folder: Path):
    model = load(str(folder), device="cpu", dtype="bfloat16", attn_implementation="eager")
    assert model.dtype == torch.bfloat16
    assert model.verdict.mask_form.is_additive


def test_a_folder_without_tokenizer_loads_without_one(tmp_path: Path):
    build("llama").save_pretrained(tmp_path)
    assert load(str(tmp_path), device="cpu").tokenizer is None


def test_loading_is_quiet_and_leaves_logging_as_it_was(
    folder: Path, capfd: pytest.CaptureFixture[str]
):
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    load(str(folder), device="cpu")
    assert capfd.readouterr() == ("", "")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


def test_a_truncated_file_is_named(folder: Path):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ConfigError, match=r"model\.safetensors is damaged or cut off"):
        load(str(folder), device="cpu")


@pytest.mark.parametrize(
    "content", [b"", b"abc", b"\x10" + b"\0" * 7 + b"{", b"\2" + b"\0" * 7 + b"[]"]
)
def test_a_file_without_a_header_is_named(tmp_path: Path, content: bytes):
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match="without a readable header"):
        check_safetensors(file)


def test_missing_weights_are_not_made_up(folder: Path):
    bigger = build_fresh("llama", num_hidden_layers=5)
    bigger.config.save_pretrained(folder)
    with pytest.raises(
        ModelMismatchError, match=r"model\.layers\.4\.\S+ first; they would be random"
    ):
        load(str(folder), device="cpu")


def test_a_home_of_nobody_is_refused():
    with pytest.raises(ConfigError, match="a home here, got '~nouser/model'"):
        load("~nouser/model")


def test_what_is_no_folder_is_refused(tmp_path: Path):
    for name in (str(tmp_path / "nowhere"), "./nowhere", "~/no/where", "a/b/c"):
        with pytest.raises(ConfigError, match="does not exist"):
            load(name)
    with pytest.raises(ConfigError, match=r"without a config\.json"):
        load(str(tmp_path))
    (tmp_path / "model.gguf").touch()
    with pytest.raises(ConfigError, match="is a file"):
        load(str(tmp_path / "model.gguf"))


def test_a_hub_id_that_is_not_in_the_cache_says_what_to_do_offline():
    said = r"model of 'no-such-org/no-such-model' in the hub's cache.*Unset HF_HUB_OFFLINE"
    with pytest.raises(ConfigError, match=said):
        load("no-such-org/no-such-model", device="cpu")


def test_a_hub_that_cannot_be_reached_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    try:
        try:
            raise LocalEntryNotFoundError("no connection, nothing in the cache")
        except LocalEntryNotFoundError as error:
            raise OSError("We couldn't connect\nto the hub") from error
    except OSError as error:
        said = str(_cannot_load("org/model", "model", error))
    assert said.startswith(f"Expected the model of 'org/model' from the hub, got no connection to "
                           f"{constants.ENDPOINT}. Give a local directory")  # fmt: skip
    assert "HF_HUB_OFFLINE=1" in said


def test_somebody_elses_error_is_shown_on_one_line():
    said = str(_cannot_load("x", "model", ValueError("two\n  lines. " + "long " * 99)))
    assert "ValueError: two lines. long" in said
    assert len(said) < 700


def test_weights_of_another_shape_are_not_made_up(folder: Path):
    build_fresh("llama", vocab_size=32).config.save_pretrained(folder)
    said = r"weight' of .* shape \(32, 32\) that its config\.json says, got \(96, 32\)"
    with pytest.raises(ModelMismatchError, match=said):
        load(str(folder), device="cpu")


def test_a_name_no_path_can_have_is_refused():
    with pytest.raises(ConfigError, match="to load, got"):
        load("x" * 300)


@pytest.mark.parametrize("device", ["gpu", "meta", "cuda:99", "cuda:-1", "hpu"])
def test_a_device_that_is_not_there_is_refused(folder: Path, device: str):
    with pytest.raises(ConfigError, match=rf"Expected a device .*, got '{device}'.* cpu"):
        load(str(folder), device=device)


def test_devices_have_names():
    assert as_device("cpu") == torch.device("cpu")
    assert as_device(torch.device("cpu")) == torch.device("cpu")
    assert as_device(None).type in ("cpu", "cuda")


@pytest.mark.parametrize("dtype", ["int8", "bool", "complex64", "float8_e4m3fn", ""])
def test_a_dtype_no_model_is_run_in_is_refused(dtype: str):
    with pytest.raises(ConfigError, match=f"Expected a dtype, got '{dtype}'"):
        as_dtype(dtype)


class _TooLarge(nn.Linear):
    def to(self, *args: object, **kwargs: object) -> None:  # type: ignore[override]
        raise torch.OutOfMemoryError("CUDA out of memory")


def test_weights_that_do_not_fit_are_named_with_their_size():
    with pytest.raises(OutOfMemoryError, match=r"weights of big need 0\.00391 GiB on cpu"):
        _move(_TooLarge(1024, 1024, bias=False), torch.device("cpu"), "big")


def test_demo_names_are_registered():
    assert "demo:smollm2" in MODELS.names()
    assert "135M" in MODELS.load("demo:smollm2").about
    with pytest.raises(RegistryError, match="Did you mean 'demo:smollm2'"):
        load("demo:smolm")


def test_dtypes_have_names():
    assert as_dtype("float16") is torch.float16
    assert as_dtype(torch.float64) is torch.float64
    assert as_dtype("auto") == "auto"
    with pytest.raises(ConfigError, match="Did you mean 'bfloat16'"):
        as_dtype("bfloat")
    with pytest.raises(ConfigError, match="Expected a dtype"):
        as_dtype("nn")


def test_faces_come_without_transformers():
    code = "import sys, lenity.models.base; assert 'transformers' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert lenity.models.load is load
    assert lenity.models.CausalLM is CausalLM
    with pytest.raises(AttributeError, match="no_such_name"):
        lenity.models.no_such_name  # noqa: B018 (the look-up is the test)
