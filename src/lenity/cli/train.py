"""``lenity train``: a target's own replies, and what is trained on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from typer.core import TyperCommand

from lenity.cli.options import DEMO_MODEL, Device, Dtype, Json
from lenity.cli.terminal import err, out, print_document, working
from lenity.cli.train_survival import survival
from lenity.errors import ConfigError

if TYPE_CHECKING:
    from lenity.models.base import LanguageModel
    from lenity.training.drafter import Trained
    from lenity.training.settings import TrainingSettings
    from lenity.training.store import FeatureStore

GIGABYTE = 10**9


class TrainingCommand(TyperCommand):
    """A command whose options are fields of TrainingSettings, which says what they mean."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Read descriptions and defaults from the model; only asking for help imports it."""
        from lenity.training.settings import TrainingSettings

        for option in self.params:
            field = TrainingSettings.model_fields.get(option.name or "")
            if field is not None:
                default = "none" if field.default is None else field.default
                default = "eagle3" if field.is_required() else default
                option.help = f"{field.description} (default: {default})"  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


train = typer.Typer(
    no_args_is_help=True,
    help="Record a target's replies; train drafters and survival predictors.",
)


@train.callback()
def _group() -> None:
    """Record a target's replies; train drafters and survival predictors."""


train.command("survival")(survival)

Count = Annotated[int | None, typer.Option(show_default=False)]
Number = Annotated[float | None, typer.Option(show_default=False)]
Replies = Annotated[
    Path,
    typer.Option(help="Recorded replies, one JSON object a line: prompt_ids, token_ids, family"),
]
Run = Annotated[Path, typer.Option("--out", "-o", help="Run directory, begun or continued")]
Target = Annotated[str, typer.Option("--target", "-m", help="Model that the drafter is for")]
Type = Annotated[
    str, typer.Option("--type", show_default=False, help="eagle3, medusa, dspark or dflash")
]
Features = Annotated[
    Path | None, typer.Option(help="Where captured features are kept (default: in the run)")
]
Length = Annotated[int, typer.Option(min=8, help="Tokens of prompt and reply used")]
Capture = Annotated[
    bool, typer.Option("--capture/--no-capture", help="Capture first, or use what there is")
]
Gigabytes = Annotated[float, typer.Option(help="Of captured features, at most")]


@train.command("replies")
def replies(
    file: Annotated[Path, typer.Option("--out", "-o", help="File of replies, begun or continued")],
    target: Target = DEMO_MODEL,
    families: Annotated[
        str, typer.Option(help="Families of lenity's own prompts, which take turns")
    ] = "maths,code,chat,data",
    prompt_file: Annotated[
        Path | None,
        typer.Option("--prompts", help="Your own prompts instead, one a line (family: own)"),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Prompts answered, at most")] = 3000,
    num_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="New tokens in the file after which it ends, earlier runs' too"),
    ] = None,
    max_new_tokens: Annotated[int, typer.Option("-n", min=4, help="Tokens per reply")] = 256,
    batch_size: Annotated[int, typer.Option(min=1, help="Replies decoded together")] = 48,
    dtype: Dtype = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Record the target's greedy replies, the text its drafters learn from.

    Own prompts are the nine tenths that are never used for checking a drafter. A run that was
    stopped goes on when the same command is given again.
    """
    pairs = prompt_pairs(families, prompt_file, count)
    with working(f"Loading {target}"):
        from lenity.models.loading import load

        model = load(target, dtype=dtype, device=device)
    found = _record(
        model,
        pairs,
        file,
        max_new_tokens=max_new_tokens,
        batch_size=batch_size,
        num_tokens=num_tokens,
    )
    if as_json:
        print_document(found)
    else:
        out().print(
            f"{found['replies']:,} replies, {found['tokens']:,} new tokens "
            f"({found['written']:,} of them now) in {file}"
        )


def _record(
    target: LanguageModel,
    pairs: list[tuple[str, str]],
    file: Path,
    *,
    num_tokens: int | None,
    **settings: int,
) -> dict[str, Any]:
    """Write replies behind a progress bar; return what the file holds then."""
    from lenity.training.replies import count_tokens, read_replies, write_replies

    done = count_tokens(read_replies(file))
    most = settings["max_new_tokens"] * len(pairs)
    with bar("Recording replies", num_tokens or most) as advance:

        def progress(tokens: int) -> None:
            nonlocal done
            done += tokens
            advance(float(done), f"{done:,} tokens")

        written = write_replies(
            target, pairs, file, num_tokens=num_tokens, progress=progress, **settings
        )
    return {
        "file": str(file),
        "replies": len(read_replies(file)),
        "tokens": done,
        "written": written,
    }


def prompt_pairs(families: str, file: Path | None, count: int) -> list[tuple[str, str]]:
    """Return (family, prompt) pairs. Raises ConfigError."""
    from lenity.registry import did_you_mean
    from lenity.training.prompts import FAMILIES, prompts

    if file is not None:
        if not file.is_file():
            raise ConfigError(f"Expected prompts in {file}, which is not there. Correct the path.")
        lines = file.read_text(encoding="utf-8-sig").splitlines()
        return [("own", line) for line in lines if line.strip()][:count]
    names = tuple(name.strip() for name in families.split(","))
    for name in names:
        if name not in FAMILIES:
            raise ConfigError(
                f"Expected families among {', '.join(FAMILIES)}, got {name!r}."
                f"{did_you_mean(name, FAMILIES)} Correct the name, or give --prompts."
            )
    return list(prompts(names, count, held_out=False))


@train.command("drafter", cls=TrainingCommand)
def drafter(
    replies: Replies,
    run: Run,
    target: Target = DEMO_MODEL,
    recipe: Type = "eagle3",
    features: Features = None,
    max_length: Length = 320,
    is_capturing: Capture = True,
    max_gigabytes: Gigabytes = 8.0,
    initial: Annotated[str | None, typer.Option(show_default=False)] = None,
    steps: Count = None,
    max_minutes: Number = None,
    max_cpu_minutes: Number = None,
    batch_size: Count = None,
    accumulate: Count = None,
    learning_rate: Number = None,
    warmup_steps: Count = None,
    precision: Annotated[str | None, typer.Option(show_default=False)] = None,
    seed: Count = None,
    report_every: Count = None,
    validate_every: Count = None,
    validation_replies: Count = None,
    checkpoint_every: Count = None,
    dtype: Dtype = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Capture what the target computes over its own replies, and train a drafter on it.

    A run that was stopped goes on when the same command is given again. The drafter that was best
    on held-out replies is in drafter/ of the run directory, in its published layout.
    """
    settings = _settings(locals())  # options that are settings bear their names
    recorded = _read(replies)
    with working(f"Loading {target}"):
        from lenity.models.loading import load

        model = load(target, dtype=dtype, device=device)
    folder = features or run / "features"
    limit = int(max_gigabytes * GIGABYTE) if is_capturing else None
    store = _features(model, recorded, folder, settings, max_length=max_length, max_bytes=limit)
    trained = _train(model, store, settings, run, recorded)
    if as_json:
        print_document(document(trained))
    else:
        _print(trained)


def _read(replies: Path) -> list[dict[str, Any]]:
    from lenity.training.replies import read_replies

    if not replies.is_file():
        raise ConfigError(
            f"Expected recorded replies in {replies}, which is not there. Record the target's "
            f"replies first (`lenity train replies`), or correct the path."
        )
    return read_replies(replies)


def _settings(params: dict[str, Any]) -> TrainingSettings:
    from lenity.registry import build_knobs
    from lenity.training.recipe import recipe
    from lenity.training.settings import TrainingSettings

    names = TrainingSettings.model_fields.keys() & params.keys()
    given = {name: params[name] for name in names if params[name] is not None}
    settings: TrainingSettings = build_knobs(TrainingSettings, given, "lenity train drafter")
    recipe(settings.recipe)  # an unknown name is refused before anything is loaded
    return settings


def _features(
    target: LanguageModel,
    recorded: list[dict[str, Any]],
    folder: Path,
    settings: TrainingSettings,
    *,
    max_length: int,
    max_bytes: int | None,
) -> FeatureStore:
    """Return captured features; without a limit of bytes, those that are there."""
    from lenity.training.capture import capture
    from lenity.training.recipe import recipe
    from lenity.training.store import open_store

    if max_bytes is None:
        return open_store(folder)
    total = sum(len(r["prompt_ids"]) + len(r["token_ids"]) for r in recorded)
    with bar("Capturing features", total) as advance:
        done = 0

        def progress(tokens: int) -> None:
            nonlocal done
            done += tokens
            advance(float(done), f"{done:,} tokens")

        return capture(
            target,
            recorded,
            folder,
            taps=recipe(settings.recipe).tapped(target.num_layers),
            max_length=max_length,
            max_bytes=max_bytes,
            progress=progress,
        )


def _train(
    target: LanguageModel,
    store: FeatureStore,
    settings: TrainingSettings,
    run: Path,
    recorded: list[dict[str, Any]],
) -> Trained:
    from lenity.training.drafter import Trainer

    with bar("Training", 1000) as advance:
        note = {"loss": "", "passes": ""}

        def report(line: dict[str, Any]) -> None:
            if "loss" in line:
                note["loss"] = f"step {line['step']}, loss {line['loss']:.3f}"
            if line.get("validation"):
                found = line["validation"]["all"]["tokens_per_pass"]
                note["passes"] = f", {found:.2f} tokens per pass"
            advance(1000 * trainer.share_done, note["loss"] + note["passes"])

        trainer = Trainer(target, store, settings, run, replies=recorded, report=report)
        return trainer.run()


@contextmanager
def bar(what: str, total: int) -> Iterator[Callable[[float, str], None]]:
    """Show a progress bar on standard error where somebody can see it."""
    console = err()
    columns = (
        TextColumn(what),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=total, note="")

        def advance(done: float, said: str) -> None:
            progress.update(task, completed=done, note=said)

        yield advance


def document(trained: Trained) -> dict[str, Any]:
    """Return what a run ended with as a document."""
    progress = trained.progress
    return {
        "run": str(trained.folder),
        "drafter": str(trained.folder / "drafter"),
        "steps": progress.step,
        "minutes": round(progress.seconds / 60, 2),
        "num_bases": progress.num_bases,
        "best_tokens_per_pass": round(progress.best, 4),
        "bytes": trained.sizes.total if trained.sizes is not None else None,
        "validation": {
            family: {
                "tokens_per_pass": round(walk.tokens_per_pass, 4),
                "acceptance": [round(rate, 4) for rate in walk.acceptance],
                "num_rounds": walk.num_rounds,
            }
            for family, walk in trained.walks.items()
        },
    }


def _print(trained: Trained) -> None:
    console, progress = out(), trained.progress
    table = Table("held-out replies", "tokens per pass", "acceptance by position", "rounds")
    for family, walk in trained.walks.items():
        rates = " ".join(f"{rate:.2f}" for rate in walk.acceptance)
        table.add_row(family, f"{walk.tokens_per_pass:.2f}", rates, str(walk.num_rounds))
    console.print(table)
    size = f", {trained.sizes.total / 1e6:.2f} MB" if trained.sizes is not None else ""
    console.print(
        f"{progress.step} steps in {progress.seconds / 60:.1f} minutes. Drafter: "
        f"{trained.folder / 'drafter'}{size}"
    )
