"""Capture of Strict SDD blocks: labels by hand, and runs that were killed."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lenity.drafters import drafter
from lenity.engine.decode import Decoder
from lenity.errors import ConfigError, RunDirError
from lenity.requests import GenerationSettings
from lenity.training.survival_blocks import BlockRecorder, Blocks, capture_blocks, read_blocks
from tests.drafters.rig import tiny_llama
from tests.models.masked_tiny import masked_folder
from tests.toys import ScriptedDrafter, cycle_model, pattern
from tests.training.killed_capture import go

ROOT = Path(__file__).parents[2]
SETTINGS = GenerationSettings(gamma=4, max_new_tokens=12, ignore_eos=True)
PROMPTS = [{"prompt_ids": [i, i + 1], "family": "code" if i % 2 else "chat"} for i in range(5)]


def scripted(*correct, **more):
    model = cycle_model()
    return Decoder(target=model, drafter=ScriptedDrafter(script=pattern(model, *correct)), **more)


def masked(tmp_path):
    made = drafter("masked_diffusion", model=str(masked_folder(tmp_path / "drafter", "dream")))
    return Decoder(target=tiny_llama(0, words=120), drafter=made, max_batch_size=2)


def test_accepted_lengths_are_what_the_drafter_got_right(tmp_path):
    decoder = scripted(3, 0, 4, 2, max_batch_size=1)
    blocks = capture_blocks(decoder, PROMPTS[:1], tmp_path, SETTINGS)
    assert blocks.accepted.tolist() == [3, 0, 4, 1], "4 + 1 + 5, and one draft before the cap"
    assert blocks.lengths.tolist() == [4, 4, 4, 1]
    assert blocks.hidden.shape == (4, 4, 0)
    assert set(blocks.prompts) == {blocks.prompts[0]}
    assert blocks.survives().sum(1).tolist() == [3, 0, 4, 1]
    assert blocks.counts("marginal").sum(1).tolist() == [4, 4, 4, 1]
    assert blocks.counts("conditional").sum(1).tolist() == [4, 1, 4, 1]


def test_a_stop_does_not_shorten_what_strict_would_accept(tmp_path):
    """The request ends at token 3, the second of four that are all the target's own."""
    decoder = scripted(4, max_batch_size=1)
    ending = SETTINGS.model_copy(update={"stop_token_ids": (3,)})
    blocks = capture_blocks(decoder, [{"prompt_ids": [1]}], tmp_path, ending)
    assert blocks.accepted.tolist() == [4]


def test_a_masked_drafters_record_is_kept(tmp_path):
    decoder = masked(tmp_path)
    blocks = capture_blocks(decoder, PROMPTS, tmp_path / "blocks", SETTINGS)
    assert blocks.hidden.dtype == torch.bfloat16
    assert blocks.hidden.shape[-1] > 1
    assert blocks.hidden.any()
    assert torch.equal(blocks.scalars[..., 4], blocks.confidence), "the probability at reveal"
    assert len(set(blocks.prompts)) == len(PROMPTS)
    first = blocks.of_prompts(blocks.prompts[:1])
    assert set(first.prompts) == {blocks.prompts[0]}
    assert first.scalars.shape[0] == blocks.prompts.count(blocks.prompts[0])


def test_a_killed_capture_goes_on_and_ends_the_same(tmp_path):
    """Files that are there are not made again; a torn one is; the end is that of one run."""
    whole = capture_blocks(masked(tmp_path), PROMPTS, tmp_path / "whole", SETTINGS)
    folder, done = tmp_path / "parts", []

    def kill(count):
        done.append(count)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        capture_blocks(masked(tmp_path), PROMPTS, folder, SETTINGS, progress=kill)
    files = sorted(folder.glob("blocks-*.safetensors"))
    assert len(files) == 2 == done[0], "one batch was whole"
    files[0].write_bytes(files[0].read_bytes()[:-3])
    (folder / "blocks-torn.partial").write_bytes(b"half")
    before = files[1].stat().st_mtime_ns
    counts = []
    again = capture_blocks(masked(tmp_path), PROMPTS, folder, SETTINGS, progress=counts.append)
    assert counts == [1, 2, 1], "the torn one and the three that were missing"
    assert files[1].stat().st_mtime_ns == before
    assert again.prompts == whole.prompts
    assert torch.equal(again.accepted, whole.accepted)
    assert torch.equal(again.lengths, whole.lengths)


@pytest.mark.parametrize("lives", [pytest.param(1, marks=pytest.mark.slow), 5])
def test_a_killed_process_loses_nothing(lives, tmp_path):
    """SIGKILL in the middle of a file: of the first, and of one inside a batch. Then to the end.

    The end is that of an unbroken run, byte by byte, and what was whole is not written again.
    """
    places = [str(tmp_path / "drafter"), str(tmp_path / "killed")]
    command = [sys.executable, "-m", "tests.training.killed_capture", *places, str(lives)]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -9
    folder = tmp_path / "killed"
    before = {file: file.stat().st_mtime_ns for file in folder.glob("blocks-*.safetensors")}
    assert len(before) == lives - 1
    assert len(list(folder.glob("*.partial"))) == 1, "half a file"
    whole = go(tmp_path / "drafter", tmp_path / "whole")
    again = go(tmp_path / "drafter", folder)
    assert again.prompts == whole.prompts
    assert _contents(folder) == _contents(tmp_path / "whole")
    assert all(file.stat().st_mtime_ns == when for file, when in before.items())


def _contents(folder):
    return {file.name: file.read_bytes() for file in folder.glob("blocks*") if file.is_file()}


def test_prompts_without_blocks_are_not_asked_again(tmp_path):
    """One new token leaves no room for a draft."""
    settings = SETTINGS.model_copy(update={"max_new_tokens": 1})
    with pytest.raises(RunDirError, match="got none"):
        capture_blocks(scripted(2), PROMPTS, tmp_path, settings)
    counts = []
    with pytest.raises(RunDirError, match="got none"):
        capture_blocks(scripted(2), PROMPTS, tmp_path, settings, progress=counts.append)
    assert counts == []


def test_other_runs_do_not_mix(tmp_path):
    capture_blocks(scripted(2), PROMPTS[:1], tmp_path, SETTINGS)
    longer = SETTINGS.model_copy(update={"gamma": 3})
    with pytest.raises(RunDirError, match=r"gamma 3 \(there: 4\)"):
        capture_blocks(scripted(2), PROMPTS[:1], tmp_path, longer)
    (tmp_path / "blocks.json").write_text("{")
    with pytest.raises(RunDirError, match=r"blocks\.json: expected JSON, got '{'"):
        capture_blocks(scripted(2), PROMPTS[:1], tmp_path, SETTINGS)


@pytest.mark.parametrize(
    ("changes", "settings"),
    [
        ({"policy": "asd"}, {}),
        ({"skip": "periodic"}, {}),
        ({}, {"temperature": 1.0}),
        ({}, {"gamma": 0}),
    ],
)
def test_only_strict_rounds_are_learned_from(changes, settings, tmp_path):
    model = cycle_model()
    made = drafter("ngram") if "skip" in changes else ScriptedDrafter(script=pattern(model, 2))
    decoder = Decoder(target=model, drafter=made, **changes)
    with pytest.raises(ConfigError, match="Expected a drafter, the policy strict"):
        capture_blocks(decoder, PROMPTS, tmp_path, SETTINGS.model_copy(update=settings))


def test_an_interrupted_decoder_is_an_interrupted_capture(tmp_path):
    def script(ids, limit):
        if len(ids) > 6:
            raise KeyboardInterrupt
        return [0] * limit

    decoder = Decoder(target=cycle_model(), drafter=ScriptedDrafter(script=script))
    with pytest.raises(KeyboardInterrupt):
        capture_blocks(decoder, PROMPTS, tmp_path, SETTINGS)
    assert not list(tmp_path.glob("blocks-*.safetensors"))


def test_a_request_without_blocks_has_an_empty_file():
    assert BlockRecorder(["x"], 4).tensors(0)["lengths"].shape == (0,)
    assert Blocks.__dataclass_params__.frozen


def test_reading_names_only_the_prompts_asked_for(tmp_path):
    blocks = capture_blocks(scripted(2), PROMPTS, tmp_path, SETTINGS)
    some = read_blocks(tmp_path, blocks.prompts[:1])
    assert torch.equal(some.scalars, blocks.of_prompts(blocks.prompts[:1]).scalars)
