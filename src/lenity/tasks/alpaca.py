"""Alpaca: instructions of many kinds (Taori et al. 2023; Wang et al. 2022, arXiv 2212.10560)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from lenity.tasks.base import DataTask, Item, user
from lenity.tasks.sources import Hub, Table


class Alpaca(DataTask):
    """Instructions, with their input where there is one; no scorer."""

    idea: ClassVar[str] = "instructions of many kinds, no scorer"
    paper: ClassVar[str] = "Stanford Alpaca (2023); Self-Instruct, arXiv 2212.10560"
    source: ClassVar[str] = "tatsu-lab/stanford_alpaca"
    licence: ClassVar[str] = "Apache-2.0 (seed tasks); the hub's generated set is CC-BY-NC-4.0"
    table: ClassVar[Table] = Table(
        files=("alpaca_seed_tasks.jsonl", "seed_tasks.jsonl", "alpaca/seed_tasks.jsonl"),
        hub=Hub(name="tatsu-lab/alpaca", split="train"),
    )

    type: Literal["alpaca"] = "alpaca"
    max_new_tokens: int = Field(default=256, ge=1)
    """New tokens an answer may have where nobody says otherwise"""

    @property
    def has_scorer(self) -> bool:
        """Return False: there are no right answers."""
        return False

    def item(self, row: Mapping[str, Any], index: int) -> Item:
        """Return the item of a row: a seed task, with its first instance, or a generated one."""
        instances = row.get("instances") or [
            {"input": row.get("input", ""), "output": row.get("output")}
        ]
        given = str(instances[0].get("input") or "").strip()
        text = row["instruction"].strip() + (f"\n\n{given}" if given else "")
        kinds = {True: "classification", False: "generation", None: "all"}
        return Item(
            id=f"alpaca/{row.get('id', index)}",
            messages=(user(text),),
            prompt=f"Instruction: {text}\n\nResponse:",
            reference=instances[0].get("output"),
            family=kinds[row.get("is_classification")],
            about=text,
        )
