"""``lenity generate``: prompts to text, with a receipt of how every token came about."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lenity.cli.options import DEMO_MODEL, Device, Dtype, Json, Model, PromptFile, Receipt
from lenity.cli.point import DECIDED, PointFile, point_decoder, read_point
from lenity.cli.prompts import read_prompts
from lenity.cli.terminal import out, print_document, working
from lenity.errors import ConfigError

if TYPE_CHECKING:
    from lenity.engine.decode import Chunk, Decoder
    from lenity.requests import GenerationSettings
    from lenity.types import Generation

INTERRUPTED = 130
"""Exit status after Ctrl-C: 128 + SIGINT."""


def generate(
    prompt: Annotated[str | None, typer.Argument(help="A text; or see --file")] = None,
    model: Model = DEMO_MODEL,
    file: PromptFile = None,
    chat: Annotated[bool, typer.Option("--chat", help="Ask as a user of the chat model")] = False,
    system: Annotated[
        str | None, typer.Option(help="System message of the conversation; implies --chat")
    ] = None,
    policy: Annotated[
        str, typer.Option(help="Such as asd:budget=8,gate=0.25,block_cap=2")
    ] = "strict",
    drafter: Annotated[
        str, typer.Option(help="ngram, self_speculative, autoregressive:model=NAME, or none")
    ] = "none",
    skip: Annotated[
        str, typer.Option(help="Rule that commits drafts without a target pass, such as raw")
    ] = "none",
    gamma: Annotated[int | None, typer.Option(show_default=False)] = None,
    max_new_tokens: Annotated[int | None, typer.Option("--max-new-tokens", "-n")] = None,
    temperature: Annotated[float | None, typer.Option()] = None,
    top_k: Annotated[int | None, typer.Option()] = None,
    top_p: Annotated[float | None, typer.Option()] = None,
    seed: Annotated[int | None, typer.Option()] = None,
    stop: Annotated[list[str] | None, typer.Option()] = None,
    dtype: Dtype = None,
    device: Device = None,
    operating_point: PointFile = None,
    as_json: Json = False,
    stream: Annotated[
        bool, typer.Option("--stream/--no-stream", help="Show text as it is committed")
    ] = True,
    receipt: Receipt = None,
) -> None:
    """Generate text, plainly, strictly speculated or within a regret budget."""
    _run(locals())


ASKED = ("gamma", "max_new_tokens", "temperature", "top_k", "top_p", "seed", "stop")
"""Options that are fields of GenerationSettings."""


def _run(options: dict[str, Any]) -> None:
    asked = {name: options[name] for name in ASKED}
    asked["stop"] = tuple(asked["stop"]) if asked["stop"] else None
    prompts = read_prompts(
        options["prompt"], options["file"], chat=options["chat"], system=options["system"]
    )
    point = read_point(options["operating_point"], **{name: options[name] for name in DECIDED})
    settings = _settings(asked if point is None else {**asked, "gamma": point.gamma})
    if point is None:
        decoder = _decoder(settings, options)
    else:
        decoder = point_decoder(point, prompts[0], options["device"])
    if options["as_json"]:
        generations = _decode(decoder, prompts, settings)
        print_document(_document(decoder, settings, generations))
    else:
        receipt = out().is_terminal if options["receipt"] is None else options["receipt"]
        generations = _show(decoder, prompts, settings, stream=options["stream"], receipt=receipt)
    if any(generation.finish_reason == "interrupted" for generation in generations):
        raise typer.Exit(INTERRUPTED)


def _settings(asked: dict[str, Any]) -> GenerationSettings:
    from lenity.requests import GenerationSettings

    return GenerationSettings.of(None, {k: v for k, v in asked.items() if v is not None})


def _decoder(settings: GenerationSettings, options: dict[str, Any]) -> Decoder:
    """Check everything that needs no model, then load it."""
    from lenity.drafters import drafter as drafter_named
    from lenity.engine.decode import Decoder
    from lenity.models.loading import load
    from lenity.policies import policy as policy_named

    rule, drafter = policy_named(options["policy"]), options["drafter"]
    drafts = None if drafter in ("none", "plain") else drafter_named(drafter)
    if not rule.is_strict and (drafts is None or settings.gamma == 0):
        raise ConfigError(
            f"Expected draft tokens for {rule} to judge, got drafter {drafter!r} and gamma "
            f"{settings.gamma}: it would be plain decoding. Name a drafter, such as --drafter "
            f"ngram, or leave --policy out."
        )
    _check_skip(options["skip"], settings.gamma)
    with working(f"Loading {options['model']}"):
        target = load(options["model"], dtype=options["dtype"], device=options["device"])
        return Decoder(target=target, drafter=drafts, policy=rule, skip=options["skip"])


def _check_skip(spec: str, gamma: int) -> None:
    """Refuse a rule that could never skip: its shortest prefix is longer than any draft."""
    from lenity.skipping import skip_rule

    shortest = 0 if spec == "none" else getattr(skip_rule(spec), "min_prefix", 0)
    if shortest > gamma:
        raise ConfigError(
            f"Expected drafts of at least min_prefix={shortest} tokens for {spec} to skip, got "
            f"gamma {gamma}: nothing would ever be skipped. Raise --gamma, lower min_prefix, or "
            f"leave --skip out."
        )


def _decode(decoder: Decoder, prompts: list[Any], settings: GenerationSettings) -> list[Generation]:
    with working(f"Decoding {len(prompts)} prompt{'s' * (len(prompts) > 1)}"):
        generations: list[Generation] = decoder.generate(prompts, settings)
    return generations


def _document(
    decoder: Decoder, settings: GenerationSettings, generations: list[Generation]
) -> dict[str, Any]:
    from lenity.cli.receipt import document

    target = decoder.target
    return {
        "model": target.name,
        "dtype": str(target.dtype).removeprefix("torch."),
        "device": str(target.device),
        "settings": settings.model_dump(mode="json", exclude={"processors"}),
        "generations": [document(generation, target.tokenizer) for generation in generations],
    }


def _show(
    decoder: Decoder,
    prompts: list[Any],
    settings: GenerationSettings,
    *,
    stream: bool,
    receipt: bool,
) -> list[Generation]:
    """Print texts and receipts; a single prompt is streamed."""
    if stream and len(prompts) == 1:
        generations = _stream(decoder, prompts[0], settings)
    else:
        generations = _decode(decoder, prompts, settings)
    for number, generation in enumerate(generations, start=1):
        if len(prompts) > 1:
            out().rule(f"prompt {number} of {len(prompts)}", align="left")
        if not (stream and len(prompts) == 1):
            _write((generation.text or "") + "\n")
        if receipt:
            _print_receipt(generation, decoder)
    return generations


def _print_receipt(generation: Generation, decoder: Decoder) -> None:
    from lenity.cli.receipt import draw_receipt

    console = out()
    console.rule("receipt", align="left", style="dim")
    console.print(draw_receipt(generation, decoder.target.tokenizer))


def _stream(decoder: Decoder, prompt: Any, settings: GenerationSettings) -> list[Generation]:
    """Write committed text as it comes. Ctrl-C between two chunks is handed to the decoder."""
    chunks = decoder.stream(prompt, settings)
    found: list[Generation] = []
    chunk = next(chunks, None)
    while chunk is not None:
        try:
            _write(chunk.text)
            if chunk.generation is not None:
                found.append(chunk.generation)
            chunk = next(chunks, None)
        except KeyboardInterrupt as interrupt:
            chunk = _interrupt(chunks, interrupt)
    _write("\n")
    return found


def _interrupt(chunks: Iterator[Chunk], interrupt: KeyboardInterrupt) -> Chunk | None:
    """Return what the stream still has to say; end the line if it has nothing."""
    try:
        return chunks.throw(interrupt)  # type: ignore[attr-defined]  # a generator
    except StopIteration:
        return None
    except KeyboardInterrupt:
        _write("\n")
        raise


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
