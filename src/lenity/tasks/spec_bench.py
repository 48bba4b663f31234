"""Spec-Bench: what speculative decoding is compared on (Xia et al. 2024, arXiv 2401.07851)."""

from __future__ import annotations

from typing import ClassVar, Literal

from lenity.tasks.mt_bench import TurnsTask
from lenity.tasks.sources import Table


class SpecBench(TurnsTask):
    """Six kinds of requests, first turns only; no scorer."""

    idea: ClassVar[str] = "chat, translation, summaries, questions, maths and retrieval, no scorer"
    paper: ClassVar[str] = "Spec-Bench, arXiv 2401.07851"
    source: ClassVar[str] = "hemingkx/Spec-Bench"
    licence: ClassVar[str] = "Apache-2.0; parts come from other sets"
    table: ClassVar[Table] = Table(files=("spec_bench_question.jsonl", "spec_bench/question.jsonl"))

    type: Literal["spec_bench"] = "spec_bench"
