"""Options that several commands share, spelled once."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

DEMO_MODEL = "demo:smollm2"
"""The model a newcomer has: it comes inside a package."""

Model = Annotated[
    str,
    typer.Option(
        "--model", "-m", help="Target: a name of `lenity list models`, a directory, or a hub id"
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(help="float32, bfloat16, float16; none: float32 on a CPU, else the checkpoint's"),
]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, …; none chooses")]
Json = Annotated[
    bool, typer.Option("--json", help="One JSON document on standard output, nothing else there")
]
PromptFile = Annotated[
    str | None,
    typer.Option(
        "--file",
        "-f",
        help="A text file (one prompt), a .jsonl file (one a line: prompt or messages), or - for "
        "standard input",
    ),
]
Receipt = Annotated[
    bool | None,
    typer.Option(
        "--receipt/--no-receipt",
        help="Show every token's kind and price (default: on a terminal)",
    ),
]


class SettingsCommand(TyperCommand):
    """A command whose options are fields of GenerationSettings, which says what they mean."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Read descriptions and defaults from the model; only asking for help imports it."""
        from lenity.requests import GenerationSettings

        for option in self.params:
            field = GenerationSettings.model_fields.get(option.name or "")
            if field is not None:
                default = "none" if field.default in (None, ()) else field.default
                option.help = f"{field.description} (default: {default})"  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)
