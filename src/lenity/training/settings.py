"""Settings of a training run, whatever the family of drafters."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class TrainingSettings(BaseModel):
    """How long, how fast, on what; frozen, and refusing what it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    recipe: str
    """Family and its knobs, such as eagle3:unroll=5,draft_vocab_size=4096"""
    steps: int = Field(default=2000, ge=1)
    """Optimiser steps; the learning rate falls to its floor on the last one"""
    max_minutes: float | None = Field(default=None, gt=0)
    """Minutes of training at most, over all parts of the run; the learning rate then falls with
    time, so that the same settings give other weights on another machine"""
    max_cpu_minutes: float | None = Field(default=None, gt=0)
    """The same in minutes of processor time, all threads together: a budget that other work on the
    machine hardly changes"""
    initial: str | None = None
    """Checkpoint to begin with, a folder in the published layout: its weights and its vocabulary,
    with a fresh optimiser; none begins with drawn weights"""
    batch_size: int = Field(default=8, ge=1)
    """Replies in one forward"""
    accumulate: int = Field(default=1, ge=1)
    """Forwards in one step"""
    learning_rate: float = Field(default=1e-3, gt=0)
    """Of AdamW, after the warm-up"""
    floor: float = Field(default=0.05, ge=0, le=1)
    """Share of the learning rate that is left at the end"""
    warmup_steps: int = Field(default=50, ge=0)
    """Steps over which the learning rate rises"""
    weight_decay: float = Field(default=0.01, ge=0)
    """Of AdamW, on matrices"""
    clip: float = Field(default=1.0, gt=0)
    """Largest norm of the gradient"""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of products; auto takes bfloat16 on a GPU and on a CPU that multiplies it fast"""
    seed: int = Field(default=0, ge=0, lt=2**31)
    """Of the first weights, the order of replies and the anchors drawn"""
    report_every: int = Field(default=10, ge=1)
    """Steps between two lines of the curve"""
    validate_every: int = Field(default=200, ge=1)
    """Steps between two validations"""
    validation_replies: int = Field(default=48, ge=1)
    """Held-out replies to validate on, at most"""
    checkpoint_every: int = Field(default=100, ge=1)
    """Steps between two states to go on from"""

    @model_validator(mode="after")
    def _check_initial(self) -> Self:
        if self.initial is not None and self.recipe.startswith("masked_diffusion"):
            raise ValueError(
                f"masked_diffusion begins with no checkpoint, for the mask's embedding is drawn "
                f"anew, got initial={self.initial}; go on with the run that made it, or leave it "
                f"out"
            )
        return self
