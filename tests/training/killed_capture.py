"""A capture that kills itself in the middle of a file: ``python -m tests.training.killed_capture``.

Arguments: a folder for the drafter, one for the blocks, and at which file's writing to die.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from lenity.drafters import drafter
from lenity.engine.decode import Decoder
from lenity.requests import GenerationSettings
from lenity.training.survival_blocks import Blocks, capture_blocks
from tests.drafters.rig import tiny_llama
from tests.models.masked_tiny import masked_folder

SETTINGS = GenerationSettings(gamma=4, max_new_tokens=12, ignore_eos=True)
PROMPTS = [{"prompt_ids": list(range(5, 7 + 3 * i)), "family": "code"} for i in range(7)]
"""Of different lengths, so that whoever is decoded beside whom matters to padding."""


def go(place: Path, folder: Path) -> Blocks:
    """Begin or go on with the capture, to its end; three prompts are decoded together."""
    if not place.is_dir():
        masked_folder(place, "dream")
    made = drafter("masked_diffusion", model=str(place))
    decoder = Decoder(target=tiny_llama(0, words=120), drafter=made, max_batch_size=3)
    return capture_blocks(decoder, PROMPTS, folder, SETTINGS)


def mortal(lives: int) -> Any:
    """Return a writer of safetensors that writes half of its last file and takes no leave."""
    whole = safetensors.torch.save

    def save_file(tensors: dict[str, torch.Tensor], file: Path, *args: Any) -> None:
        nonlocal lives
        lives -= 1
        content = whole(tensors)
        file.write_bytes(content if lives else content[: len(content) // 2])
        if not lives:
            os.kill(os.getpid(), signal.SIGKILL)

    return save_file


if __name__ == "__main__":
    torch.set_num_threads(1)
    safetensors.torch.save_file = mortal(int(sys.argv[3]))
    go(Path(sys.argv[1]), Path(sys.argv[2]))
