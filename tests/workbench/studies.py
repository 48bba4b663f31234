"""A whole study in seconds: a cycle model that speaks in characters, questions, a wrong drafter."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import torch

from lenity.drafters.ngram import Ngram
from lenity.models.base import KVCache, LanguageModel
from lenity.policies import policy
from lenity.workbench.audit import AuditSettings
from lenity.workbench.audit_run import Study
from lenity.workbench.config import FixedWork, NaturalEos
from lenity.workbench.facts import drafter_facts, target_facts
from lenity.workbench.operating_point import OperatingPoint, freeze
from lenity.workbench.protocols import Deadline
from lenity.workbench.provenance import collect
from lenity.workbench.select import Questions
from tests.cases.rig import CharTokenizer
from tests.toys import ScriptedSession, TableModel, cycle_model

VOCAB, END = 64, 63
DRAFTER = "ngram"


class Sure(ScriptedSession):
    """Sure of every token, right or wrong."""

    def propose(self, context):
        draft = super().propose(context)
        return replace(draft, confidence=torch.full(draft.token_ids.shape, 0.97))


class Hasty(Ngram):
    """Drafts the runner-up at every second place: half a nat each, under the name of ngram."""

    def open(self, target: LanguageModel, cache: KVCache) -> ScriptedSession:
        return Sure(hasty)


def hasty(ids, limit):
    out, last = [], ids[-1]
    for i in range(limit):
        last = (last + 1 + i % 2) % VOCAB
        out.append(last)
    return out


def model() -> TableModel:
    """Counts up to END and stops; relaxed may jump over a number, or over END."""
    return cycle_model(VOCAB, eos=(END,), tokenizer=CharTokenizer())


def questions_file(folder: Path, count: int = 40) -> Path:
    """Questions of two families that differ in more than capitals; strict says the answer."""
    file = folder / "questions.jsonl"
    rows = [
        {
            "id": f"q{i}",
            "prompt": chr(0x105 + 2 * (i // 20)) + chr(0x101 + 2 * (i % 20)),
            "family": "odd" if i % 2 else "even",
            "reference": "".join(chr(0x100 + t) for t in range(2 + 2 * (i % 20), END + 1)),
        }
        for i in range(count)
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


def study(folder: Path, data: Path, *, minutes: float | None = None, target=None) -> Study:
    return Study(
        target=target or model(),
        folder=folder,
        data=data,
        drafters={DRAFTER: Hasty()},
        deadline=Deadline(minutes),
    )


def questions(num_prompts: int = 8, spec: str = "jsonl") -> Questions:
    return Questions(tasks=(spec,), num_prompts=num_prompts)


def point(data: Path, rule: str = "asd:budget=1,gate=inf,block_cap=none") -> OperatingPoint:
    """A frozen point chosen on the discovery side."""
    own = study(data.parent, data)
    chosen = own.selection(questions(), "discovery")
    provenance = collect(
        target=target_facts(own.target),
        drafters=[drafter_facts(Hasty(), own.target)],
        template_hash=chosen.template_hash,
        data=chosen.revisions,
    )
    return freeze(
        provenance,
        policy(rule),
        drafter=DRAFTER,
        gamma=4,
        batch_size=2,
        data=chosen.data_split,
    )


def audit_settings(**changes: object) -> AuditSettings:
    base = {
        "questions": questions(),
        "work_prompts": 2,
        "fixed": FixedWork(new_tokens=12, repeats=2, warmup_tokens=0),
        "natural": NaturalEos(max_new_tokens=80),
        "resamples": 200,
    }
    return AuditSettings.model_validate({**base, **changes})
