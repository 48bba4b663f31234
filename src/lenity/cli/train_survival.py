"""``lenity train survival``: how far strict would follow a draft, learned from strict rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from lenity.cli.options import DEMO_MODEL, Device, Dtype, Json
from lenity.cli.terminal import out, print_document, working
from lenity.errors import ConfigError

if TYPE_CHECKING:
    from lenity.engine.decode import Decoder
    from lenity.training.survival import Rotation, SurvivalSettings
    from lenity.training.survival_blocks import Blocks
    from lenity.workbench.diagnostics import LoggedBlocks, Signal

ESTIMANDS = ("marginal", "conditional")


def survival(
    run: Annotated[Path, typer.Option("--out", "-o", help="Run directory, begun or continued")],
    drafter: Annotated[str, typer.Option("--drafter", "-d", help="Spec of a target-free drafter")],
    target: Annotated[str, typer.Option("--target", "-m", help="Model it drafts for")] = DEMO_MODEL,
    families: Annotated[
        str, typer.Option(help="Families of lenity's own prompts, which take turns")
    ] = "maths,code,chat,data",
    prompt_file: Annotated[
        Path | None,
        typer.Option("--prompts", help="Your own prompts instead, one a line (family: own)"),
    ] = None,
    count: Annotated[int, typer.Option(min=5, help="Prompts decoded, at most")] = 200,
    gamma: Annotated[int, typer.Option(min=1, help="Draft tokens per round")] = 16,
    max_new_tokens: Annotated[int, typer.Option("-n", min=2, help="Tokens per reply")] = 256,
    batch_size: Annotated[int, typer.Option(min=1, help="Replies decoded together")] = 8,
    estimands: Annotated[
        str, typer.Option(help="What is estimated: marginal, conditional, or both")
    ] = ",".join(ESTIMANDS),
    has_hidden: Annotated[
        bool, typer.Option("--hidden/--scalars-only", help="Read the drafter's state too, or not")
    ] = True,
    is_calibrated: Annotated[
        bool, typer.Option("--calibrate", help="Fit temperatures: survival, drafter's confidence")
    ] = False,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training folds")] = 15,
    seed: Annotated[int, typer.Option(min=0, help="Of weights, order and dropout")] = 0,
    dtype: Dtype = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Decode prompts strictly, and learn from every drafted block how far strict followed it.

    A predictor a fold is in marginal/ and conditional/ of the run directory: use one as
    `conditional:predictor=RUN/conditional/fold-0`. Prompts of its test fold were not seen by it.
    A run that was stopped goes on when the same command is given again.
    """
    from lenity.cli.train import prompt_pairs

    settings = [
        _settings(
            name, has_hidden=has_hidden, is_calibrated=is_calibrated, epochs=epochs, seed=seed
        )
        for name in _names(estimands)
    ]
    pairs = prompt_pairs(families, prompt_file, count)
    with working(f"Loading {target}"):
        decoder = _decoder(target, drafter, batch_size, dtype=dtype, device=device)
    blocks = _capture(decoder, pairs, run / "blocks", gamma=gamma, max_new_tokens=max_new_tokens)
    rotations: dict[str, list[Rotation]] = {
        str(s.estimand): _rotate(blocks, s, run, str(decoder.drafter)) for s in settings
    }
    found = document(run, blocks, rotations)
    if is_calibrated:
        found["confidence"] = calibrated_confidence(run, str(decoder.drafter))
    if as_json:
        print_document(found)
    else:
        _print(found)


def _names(estimands: str) -> list[str]:
    names = [name.strip() for name in estimands.split(",")]
    for name in names:
        if name not in ESTIMANDS:
            raise ConfigError(
                f"Expected estimands among {', '.join(ESTIMANDS)}, got {name!r}. Correct the name."
            )
    return names


def _settings(estimand: str, **given: Any) -> SurvivalSettings:
    from lenity.training.survival import SurvivalSettings

    # a product is calibrated; marginal survival has none
    calibrated = given.pop("is_calibrated") and estimand == "conditional"
    return SurvivalSettings(estimand=estimand, is_calibrated=calibrated, **given)


def _decoder(target: str, drafter: str, batch_size: int, **options: Any) -> Decoder:
    from lenity.engine.decode import Decoder
    from lenity.models.loading import load

    model = load(target, **options)
    if model.tokenizer is None:
        raise ConfigError(
            f"Expected a target with a tokenizer to read prompts, got {target} without one. Load "
            f"it with its tokenizer."
        )
    return Decoder(target=model, drafter=drafter, max_batch_size=batch_size)


def _capture(
    decoder: Decoder, pairs: list[tuple[str, str]], folder: Path, **settings: int
) -> Blocks:
    from lenity.cli.train import bar
    from lenity.requests import GenerationSettings
    from lenity.training.survival_blocks import capture_blocks

    tokenizer = decoder.target.tokenizer
    assert tokenizer is not None, "checked where it was loaded"
    prompts = [
        {"family": family, "prompt_ids": tokenizer.encode_chat([{"role": "user", "content": text}])}
        for family, text in pairs
    ]
    with bar("Recording blocks", len(prompts)) as advance:
        done = 0

        def progress(count: int) -> None:
            nonlocal done
            done += count
            advance(float(done), f"{done:,} prompts")

        return capture_blocks(
            decoder, prompts, folder, GenerationSettings(**settings), progress=progress
        )


def _rotate(blocks: Blocks, settings: SurvivalSettings, run: Path, drafter: str) -> list[Rotation]:
    from lenity.cli.train import bar
    from lenity.training.survival import rotate
    from lenity.workbench.calibration import fit_temperatures

    with bar(f"Training {settings.estimand} survival", settings.num_folds) as advance:
        return rotate(
            blocks,
            settings,
            run / settings.estimand,
            drafter=drafter,
            calibrate=lambda *parts: fit_temperatures(*(part.numpy() for part in parts)),
            progress=lambda fold, loss: advance(fold + 1.0, f"fold {fold}, {loss:.3f} nats"),
        )


def lines(signal: str, rotations: list[Rotation]) -> Iterator[dict[str, Any]]:
    """Yield the test blocks of all folds as lines of a log; raw has the drafter's confidence."""
    for rotation in rotations:
        test = rotation.test
        scores = test.confidence if signal == "raw" else rotation.scores
        columns = zip(test.prompts, test.lengths.tolist(), test.accepted.tolist(), strict=True)
        for row, (prompt, length, accepted) in enumerate(columns):
            yield {
                "signal": signal,
                "prompt": prompt,
                "fold": rotation.fold,
                "accepted": accepted,
                "scores": [round(value, 6) for value in scores[row, :length].tolist()],
            }


def document(run: Path, blocks: Blocks, rotations: Mapping[str, list[Rotation]]) -> dict[str, Any]:
    """Write the test blocks of every signal into the run; return what the signals are worth."""
    from lenity.workbench.diagnostics import read_blocks, write_blocks

    logs: dict[Signal, Path] = {}
    any_rotations = next(iter(rotations.values()))
    for signal, own in {"raw": any_rotations, **rotations}.items():
        logs[signal] = run / f"{signal}.jsonl"  # type: ignore[index]
        write_blocks(run / f"{signal}.jsonl", lines(signal, own))
    return {
        "run": str(run),
        "prompts": len(set(blocks.prompts)),
        "blocks": len(blocks.prompts),
        "mean_accepted": round(float(blocks.accepted.double().mean()), 4),
        "signals": {signal: judged(read_blocks(file)) for signal, file in logs.items()},
    }


def calibrated_confidence(run: Path, drafter: str) -> dict[str, Any] | None:
    """Fit temperatures of the drafter's confidence on the run's raw.jsonl, as confidence.json.

    Return what the file holds; None for a drafter that gives no confidence.
    """
    from lenity.skipping.calibration import Calibration
    from lenity.training.store import write_atomically
    from lenity.workbench.calibration import fit_confidence
    from lenity.workbench.diagnostics import read_blocks

    blocks = read_blocks(run / "raw.jsonl")
    fit = fit_confidence(blocks.scores, blocks.lengths, blocks.accepted, blocks.folds)
    if fit is None:
        return None
    made = Calibration(drafter=drafter, **fit.model_dump())
    write_atomically(run / "confidence.json", made.model_dump_json(indent=1).encode())
    return made.model_dump(mode="json")


def judged(blocks: LoggedBlocks) -> dict[str, Any]:
    """Return position-wise quality, reliability, and what the published gates make of it.

    ``prefix_calibration_error`` is that of C_k as an estimate of P(L >= k), drafted positions.
    """
    from lenity.workbench.diagnosis import diagnose

    found = diagnose(blocks)
    whole = {"passing_before", "passing_after", "repetitions"}
    return {
        "bce": found.bce,
        "baseline_bce": found.baseline_bce,
        "auroc": found.auroc,
        "positions": [position.model_dump() for position in found.positions],
        "prefix_calibration_error": found.prefix_calibration_error,
        "reliability": [own.model_dump() for own in found.reliability],
        "gates": found.gates.model_dump(exclude={"signal"}),
        "permutation": found.permutation.model_dump(exclude=whole),
        "ablation": [
            outcome.model_dump()
            | {"strict_token": outcome.strict_token, "full_prefix": outcome.full_prefix}
            for outcome in found.ablation
        ],
    }


def _print(found: Mapping[str, Any]) -> None:
    table = Table("signal", "BCE", "baseline", "AUROC", "ECE", "prefix", "shuffled", "strict")
    for name, signal in found["signals"].items():
        full = signal["ablation"][0]["strict_token"]
        table.add_row(
            name,
            f"{signal['bce']:.3f}",
            f"{signal['baseline_bce']:.3f}",
            "-" if signal["auroc"] is None else f"{signal['auroc']:.3f}",
            f"{signal['prefix_calibration_error']:.3f}",
            f"{signal['permutation']['before']:.2f}",
            f"{signal['permutation']['after']:.2f}",
            "-" if full is None else f"{full:.3f}",
        )
    console = out()
    console.print(table)
    console.print(
        "baseline: cross-entropy of a position's rate alone; ECE: calibration error of a prefix's "
        "score; prefix: mean draft tokens that pass the gates, shuffled: after permuting blocks "
        "position by position; strict: share of passed tokens that strict accepts"
    )
    console.print(
        f"{found['blocks']:,} blocks of {found['prompts']} prompts, strict accepts "
        f"{found['mean_accepted']:.2f} draft tokens of each on average. Predictors and the test "
        f"folds' scores are in {found['run']}"
    )
    if found.get("confidence"):
        own = found["confidence"]
        console.print(
            f"The drafter's confidence: calibration error of its product {own['error_before']:.3f},"
            f" {own['error_after']:.3f} with the temperatures in confidence.json (each fold with "
            f"those of the others)."
        )
