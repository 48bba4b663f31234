"""Write a policy of one's own: accept a mismatch within a margin, where the target is unsure.

A policy is frozen knobs and one pure function of tensors; it knows no model. Everything else, the
ledger, the receipt, stop ids that are never relaxed, comes with the engine.

Run `python examples/write_a_policy.py [MODEL]`; without a name, a tiny random model is built.
"""

import sys
import tempfile
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field
from tiny_model import save_tiny_model
from torch import Tensor

import lenity
from lenity.policies.base import RelaxedPolicy
from lenity.types import Draft, Scores


class CloseCall(RelaxedPolicy):
    """Pass a draft token whose logit is within ``margin`` nats of the target's choice."""

    idea: ClassVar[str] = "pass what is within a margin of the target's choice"
    paper: ClassVar[str] = "an example"

    type: Literal["close_call"] = "close_call"
    margin: float = Field(default=0.1, ge=0)
    """Nats; 0 passes exact ties only"""

    def accepts(self, draft: Draft, scores: Scores) -> Tensor:
        """Return which of the (B, G) positions pass although they differ from the argmax."""
        return scores.regret <= self.margin


def main(name: str) -> None:
    target = lenity.load(name, dtype="float32")
    drafter = lenity.drafter("self_speculative", skip=str(target.num_layers // 2))
    for margin in (0.0, 0.1, 1.0):
        decoder = lenity.Decoder(target=target, drafter=drafter, policy=CloseCall(margin=margin))
        found = decoder.generate("A letter to the sea:", max_new_tokens=32, gamma=4)
        print(f"{decoder.policy}: {found.tokens_per_target_pass:.2f} tokens per target pass")
        print(f"    {found.num_relaxed} relaxed tokens, {found.regret_spent:.3f} nats")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(save_tiny_model(Path(folder)))
