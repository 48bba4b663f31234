"""``lenity draft-check``: what a drafter was understood to be, and whether it drafts well."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from lenity.cli.masked_check import check_shift, is_contradicted, is_masked, shift_words
from lenity.cli.options import Device, Dtype, Json
from lenity.cli.terminal import out, print_document, working
from lenity.errors import LenityError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lenity.drafters.base import Drafter
    from lenity.engine.acceptance import Acceptance, Diagnosis
    from lenity.models.base import LanguageModel
    from lenity.models.heads.checkpoint import Checkpoint
    from lenity.requests import GenerationSettings
    from lenity.types import Generation

BASELINE = "ngram"
"""Needs no training and costs next to nothing: what a trained drafter has to beat."""
GAMMA = 5
"""Draft tokens per round where neither the user nor the drafter says a number."""
CLEARLY_BETTER = 1.1
"""Tokens per target pass another reading has to give, relative to the one in use."""


def draft_check(
    target: Annotated[
        str, typer.Argument(help="Target: a name of `lenity list models`, a directory, a hub id")
    ],
    drafter: Annotated[
        str,
        typer.Argument(
            help="A drafter's checkpoint (directory or hub id; its format is found out), or a "
            "spec such as dflash:model=DIR,slots=fill_in"
        ),
    ],
    prompts: Annotated[int, typer.Option(min=1, max=200, help="Prompts decoded")] = 8,
    gamma: Annotated[
        int | None,
        typer.Option(min=1, help="Draft tokens per round (default: the drafter's own number)"),
    ] = None,
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", "-n", min=8, help="Tokens per answer")
    ] = 64,
    dtype: Dtype = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Load a drafter, say what it was understood to be, and whether its acceptance looks right.

    Decodes a few prompts strictly, with the drafter and with the n-gram drafter. Exits 1 when
    acceptance looks wrong, 2 when target or drafter cannot be loaded.
    """
    from lenity.models.loading import load

    with working(f"Loading {target}"):
        model = load(target, dtype=dtype, device=device)
    with working(f"Loading {drafter}"):
        drafts, checkpoint = find_drafter(drafter, model)
        described = drafts.describe(model)
    trial = _Trial(model, prompts, max_new_tokens, gamma or described.get("draft_length") or GAMMA)
    with working(f"Decoding {prompts} prompts with each drafter"):
        report = examine(drafts, described, trial)
    if checkpoint is not None:
        known = known_target(checkpoint, model)
        report["drafter"] |= {"trained_for": known.name, "is_for_this_target": known.is_this}
        report["says"] += known.says
    if as_json:
        print_document(report)
    else:
        _print(report)
    if not report["looks_right"]:
        raise typer.Exit(1)


def find_drafter(drafter: str, target: LanguageModel) -> tuple[Drafter, Checkpoint | None]:
    """Return the drafter of a spec, or of a checkpoint by its format; and its checkpoint, if any.

    Raises what reading either raises.
    """
    from lenity.drafters import DRAFTERS
    from lenity.drafters import drafter as drafter_named
    from lenity.drafters.block import HeadDrafter
    from lenity.models.heads.checkpoint import open_checkpoint
    from lenity.paths import expanded

    is_spec = drafter.partition(":")[0] in DRAFTERS.names()
    if not is_spec and ("/" in drafter or expanded(drafter).exists()):
        if is_masked(open_checkpoint(drafter).config):  # it is made for no target
            return drafter_named("masked_diffusion", model=drafter), None
        checkpoint = open_checkpoint(drafter, target=target)
        return drafter_named(family_of(checkpoint, target), model=drafter), checkpoint
    named = drafter_named(drafter)
    if isinstance(named, HeadDrafter) and isinstance(named.model, str):
        return named, open_checkpoint(named.model, revision=named.revision, target=target)
    return named, None


def family_of(checkpoint: Checkpoint, target: LanguageModel) -> str:
    """Return the name of the drafter that runs a checkpoint. Raises UnsupportedModelError."""
    from lenity.models.heads.dflash_config import read_config
    from lenity.models.heads.formats import detect_format

    family = detect_format(checkpoint.config, checkpoint.keys).family
    if family == "dflash":  # DeepSpec writes both into one layout, and either head may be off
        config = read_config(checkpoint, num_target_layers=target.num_layers)
        return "dspark" if config.markov_rank or config.has_confidence else family
    return family


def stated_target(config: Mapping[str, Any]) -> str | None:
    """Return the target that a checkpoint says it was trained for; None where it says nothing."""
    verifier = (config.get("speculators_config") or {}).get("verifier") or {}
    found = verifier.get("name_or_path") or config.get("base_model_name_or_path")
    return None if found is None else str(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTarget:
    """What a checkpoint tells of the target it was trained for, and what to make of it.

    ``is_this`` is True where tokens and chat template were compared, None where nobody can tell.
    """

    name: str | None
    is_this: bool | None
    says: list[str]


def known_target(checkpoint: Checkpoint, target: LanguageModel) -> KnownTarget:
    """Return what is known; what says that it is for another target was refused on opening."""
    made_for = checkpoint.made_for
    if made_for is not None and made_for.is_known_to_fit(target):
        return KnownTarget(name=made_for.target, is_this=True, says=[])
    name = stated_target(checkpoint.config) if made_for is None else made_for.target
    if made_for is not None:
        said = "Its lenity.json fits in its sizes; tokens or chat template cannot be compared"
    elif name is None:
        said = "Nothing in the checkpoint says which target and chat template it was trained for"
    elif name == target.name:
        said = "The config names this target, but not the chat template it was trained with"
    else:
        said = f"The config names {name} as the target, which may or may not be {target.name}"
    return KnownTarget(
        name=name, is_this=None, says=[f"{said}: acceptance is the only sign that it fits."]
    )


@dataclass(frozen=True, slots=True)
class _Trial:
    """What every drafter of a check is tried on."""

    target: LanguageModel
    num_prompts: int
    max_new_tokens: int
    gamma: int

    @property
    def prompts(self) -> tuple[list[Any], str]:
        from lenity.cli.own_prompts import own_prompts

        return own_prompts(self.target, self.num_prompts)

    @property
    def settings(self) -> GenerationSettings:
        from lenity.requests import GenerationSettings

        return GenerationSettings(gamma=self.gamma, max_new_tokens=self.max_new_tokens)

    def decode(self, drafter: Drafter | str) -> list[Generation]:
        """Return every prompt decoded strictly, as one batch."""
        from lenity.engine.decode import Decoder

        decoder = Decoder(target=self.target, drafter=drafter)
        generations: list[Generation] = decoder.generate(self.prompts[0], self.settings)
        return generations


def examine(drafter: Drafter, described: Mapping[str, Any], trial: _Trial) -> dict[str, Any]:
    """Return everything that a check found, as plain values."""
    from lenity.engine.acceptance import Acceptance, diagnose

    arms = {"drafter": trial.decode(drafter), BASELINE: trial.decode(BASELINE)}
    acceptance = {name: Acceptance.of_generations(made) for name, made in arms.items()}
    found = diagnose(acceptance["drafter"])
    rows = {name: _arm(arms[name], acceptance[name]) for name in arms}
    pairs = zip(*arms.values(), strict=True)
    target = trial.target
    shift = check_shift(drafter, target, arms["drafter"])
    looks_right = not found.shape.is_wrong and not is_contradicted(shift)
    return {
        "target": {
            "name": target.name,
            "layers": target.num_layers,
            "hidden_size": target.hidden_size,
            "vocabulary": target.vocab_size,
            "dtype": str(target.dtype).removeprefix("torch."),
            "device": str(target.device),
        },
        "drafter": {"spec": drafter.spec, "family": drafter.type, **described},
        "prompts": trial.prompts[1],
        "settings": {"policy": "strict", **trial.settings.model_dump(exclude={"processors"})},
        "arms": rows,
        "same_tokens": {"equal": sum(a.token_ids == b.token_ids for a, b in pairs)}
        | {"of": trial.num_prompts},
        "diagnosis": asdict(found),
        "shift": shift,
        "another_reading": None
        if looks_right
        else _another_reading(drafter, described, rows["drafter"], trial),
        "looks_right": looks_right,
        "says": [*_says(found, rows), *shift_words(shift)],
    }


def _arm(generations: list[Generation], acceptance: Acceptance) -> dict[str, Any]:
    from lenity.cli.figures import Totals

    totals = Totals.of(generations)
    return {
        "emitted": totals.emitted,
        "rounds": totals.rounds,
        "drafting_rounds": acceptance.drafting_rounds,
        "target_passes": totals.target_passes,
        "tokens_per_target_pass": totals.tokens_per_target_pass,
        "positions": [
            {
                "position": i,
                "judged": position.judged,
                "reached": position.reached,
                "accepted": position.accepted,
                "rate": position.rate,
                "conditional": position.conditional,
                "interval": position.interval,
            }
            for i, position in enumerate(acceptance.positions)
        ],
    }


def _says(found: Diagnosis, rows: Mapping[str, Any]) -> list[str]:
    """Return the verdict in sentences."""
    ours, theirs = (row["tokens_per_target_pass"] for row in rows.values())
    said = [found.words]
    if found.causes:
        said += ["Likely causes:", *(f"- {cause}" for cause in found.causes)]
    if ours < theirs:
        said.append(
            f"Prompt lookup, which costs next to nothing, gives {theirs:.2f} tokens per target "
            f"pass here, the drafter {ours:.2f}: on such prompts it does not earn its cost."
        )
    return said


def _another_reading(
    drafter: Drafter, described: Mapping[str, Any], row: Mapping[str, Any], trial: _Trial
) -> dict[str, Any] | None:
    """Read a drafter in other ways than it was (``row``); return the best that is clearly better.

    A reading counts when its own acceptance looks right. None: nothing to change, or no gain.
    """
    from lenity.cli.figures import Totals
    from lenity.drafters import drafter as drafter_named
    from lenity.engine.acceptance import Acceptance, diagnose

    knobs = drafter.model_dump(exclude={"type"}, exclude_defaults=True)
    best: dict[str, Any] | None = None
    for change in _other_readings(described, trial.target):
        try:
            made = trial.decode(drafter_named(drafter.type, **{**knobs, **change}))
        except LenityError:
            continue
        tokens = Totals.of(made).tokens_per_target_pass
        is_right = not diagnose(Acceptance.of_generations(made)).shape.is_wrong
        known = row["tokens_per_target_pass"] * CLEARLY_BETTER
        if is_right and tokens > (known if best is None else best["tokens_per_target_pass"]):
            best = {"change": change, "tokens_per_target_pass": tokens}
    return best


def _other_readings(
    described: Mapping[str, Any], target: LanguageModel
) -> Iterator[dict[str, str]]:
    """Yield knobs that read the same weights by another published convention, one at a time."""
    if "slots" in described:
        others = {"fill_in": "anchor_first", "anchor_first": "fill_in"}
        yield {"slots": others[described["slots"]]}
    for step in (1, -1) if "taps" in described else ():
        taps = [tap + step for tap in described["taps"]]
        if min(taps) >= -1 and max(taps) < target.num_layers:
            yield {"taps": "+".join(map(str, taps))}
    if "norm_output" in described:
        yield {"norm_output": str(not described["norm_output"]).lower()}
    if "shifted_logits" in described:
        yield {"shift": str(not described["shifted_logits"]).lower()}


def _print(report: dict[str, Any]) -> None:
    console = out()
    for title in ("target", "drafter"):
        console.print(Text(title, "bold"))
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for key, value in report[title].items():
            table.add_row(Text(f"  {key.replace('_', ' ')}", "cyan"), Text(_spell(key, value)))
        console.print(table)
    console.print()
    settings, same = report["settings"], report["same_tokens"]
    console.print(
        Text(
            f"{report['prompts']}; strict, gamma {settings['gamma']}, up to "
            f"{settings['max_new_tokens']} tokens each."
        )
    )
    console.print(_table(report["arms"]))
    for name, arm in report["arms"].items():
        console.print(
            Text(
                f"{name}: {arm['tokens_per_target_pass']:.2f} tokens per target pass "
                f"({arm['emitted']} tokens in {arm['target_passes']} passes, "
                f"{arm['drafting_rounds']} of {arm['rounds']} rounds with a draft)"
            )
        )
    console.print(Text(f"Both give the same tokens for {same['equal']} of {same['of']} prompts.\n"))
    style = "green" if report["looks_right"] else "bold red"
    console.print(Text("Looks right." if report["looks_right"] else "Looks wrong.", style))
    for line in [*report["says"], *_advice(report)]:
        console.print(Text(line))


def _advice(report: dict[str, Any]) -> list[str]:
    other = report["another_reading"]
    if other is None:
        return ["Acceptance is not speed: `lenity doctor --curves` measures what drafts cost here."]
    ((knob, value),) = other["change"].items()
    return [
        f"Read with {knob}={value} the same weights give {other['tokens_per_target_pass']:.2f} "
        f"tokens per target pass and look right: that is probably it."
    ]


def _spell(key: str, value: Any) -> str:
    if value is None:
        return "not known" if key.startswith("is_") else "not said"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        spelled = ", ".join(map(str, value))
        return f"{spelled} (0 = output of the first layer)" if key == "taps" else spelled
    return f"{value:,}" if key == "parameters" else str(value)


def _table(arms: Mapping[str, Any]) -> Table:
    """Return acceptance by position, the drafter beside the n-gram drafter."""
    table = Table(box=SIMPLE_HEAD)
    heads = ("at", "judged", "accepted", "rate", "reached", "condi-\ntional", "95 %\ninterval")
    for name in (*heads, f"{BASELINE}\nreached", f"{BASELINE}\ncond."):
        table.add_column(name, justify="right", no_wrap=True)
    ours, theirs = (arm["positions"] for arm in arms.values())
    for i in range(max(len(ours), len(theirs))):
        table.add_row(
            str(i),
            *(_cells(ours[i]) if i < len(ours) else [""] * (len(heads) - 1)),
            *(_short_cells(theirs[i]) if i < len(theirs) else ["", ""]),
        )
    return table


def _cells(row: Mapping[str, Any]) -> list[str]:
    low, high = row["interval"]
    counts = [str(row["judged"]), str(row["accepted"]), f"{row['rate']:.2f}"]
    return [*counts, *_short_cells(row), f"{low:.2f}–{high:.2f}"]


def _short_cells(row: Mapping[str, Any]) -> list[str]:
    return [str(row["reached"]), f"{row['conditional']:.2f}" if row["reached"] else "–"]
