"""``lenity demo``: a real model under plain, strict and relaxed decoding, with what each costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from lenity.cli.demo_prompts import COPYING, PROMPTS
from lenity.cli.options import DEMO_MODEL, Json, Model
from lenity.cli.terminal import err, out, print_document, say, stage

if TYPE_CHECKING:
    from lenity.cli.trial import Arm
    from lenity.models.base import LanguageModel

GAMMA = 4
"""Draft tokens per round in fp32, where a pass over 5 tokens costs half as much again as over 1."""
COPY_GAMMA = 7
"""Draft tokens per round in bf16, where a pass over 8 tokens costs hardly more than over 1."""
THREADS = 2
"""A small model gains nothing from more, and loses beside other work."""
DRAFTER = "self_speculative"
"""High acceptance without training; how fast it is, is another matter."""
TRAINED = "eagle3:model=demo:smollm2"
"""The drafter that lenity ships for its demo model."""
RULES = {
    "strict": "strict",
    "asd": "asd:budget=8,gate=0.25,block_cap=2",
    "priced": "priced:budget=8,price=0.5",
}


def demo(
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", "-n", min=1, help="Tokens per answer")
    ] = 64,
    prompts: Annotated[
        int, typer.Option(min=1, max=len(PROMPTS), help="How many prompts of the main table")
    ] = 4,
    model: Model = DEMO_MODEL,
    drafter: Annotated[str, typer.Option(help="Drafter of the main table")] = DRAFTER,
    study: Annotated[
        Path | None,
        typer.Option(help="Folder for a small tune, freeze and audit at the end; none leaves it"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Decode the same prompts plainly, strictly speculated, with ASD and with prices.

    Exits 1 if strict differs from plain decoding in float32, or a budget is overspent.
    """
    report, exact = _run(model, drafter, prompts, max_new_tokens)
    if as_json:
        print_document(report)
    else:
        _print(report)
        _print_receipt(exact)
        if study is not None:
            from lenity.cli.demo_study import study as tune_and_audit

            tune_and_audit(study)
    if report["failures"]:
        raise typer.Exit(1)


def _run(
    model: str, drafter: str, num_prompts: int, max_new_tokens: int
) -> tuple[dict[str, Any], list[Arm]]:
    import torch

    from lenity.drafters import drafter as drafter_named
    from lenity.models.loading import load

    torch.set_num_threads(min(THREADS, torch.get_num_threads()))
    drafter_named(drafter)  # an unknown name is refused before anything is loaded
    converts = " (the first time, it is converted: about a minute)" * model.startswith("demo:")
    with stage(f"Loading {model}{converts}"):
        exact, wide = (load(model, dtype=dtype) for dtype in ("float32", "bfloat16"))
    main = _arms(exact, drafter, RULES)
    trained = _arms(wide, TRAINED, RULES) if model == DEMO_MODEL else []
    copying = _arms(wide, "ngram", {"strict": "strict"})
    asked = dict(list(PROMPTS.items())[:num_prompts])
    parts = [(main, drafter, GAMMA, asked), (copying, "ngram", COPY_GAMMA, COPYING)]
    if trained:
        parts.insert(1, (trained, TRAINED, GAMMA, asked))
    with _progress(sum(len(arms) * len(texts) for arms, _, _, texts in parts)) as advance:
        for arms, drafts, gamma, texts in parts:
            _tell(arms, drafts, texts)
            _decode(arms, texts, max_new_tokens, gamma, advance)
    with stage("Measuring what a target pass costs"):
        sections = [
            _section(arms, drafts, gamma, texts, _cost(arms[0].decoder.target, gamma))
            for arms, drafts, gamma, texts in parts
        ]
    report = {
        "model": exact.name,
        "threads": torch.get_num_threads(),
        "max_new_tokens": max_new_tokens,
        "sections": sections,
        "failures": _failures(main, [*trained, *copying]),
    }
    return report, main


def _arms(target: LanguageModel, drafter: str, rules: dict[str, str]) -> list[Arm]:
    from lenity.cli.trial import Arm
    from lenity.drafters import drafter as drafter_named
    from lenity.engine.decode import Decoder

    plain = Arm(name="plain", decoder=Decoder(target=target))
    drafts = drafter_named(drafter)
    return [
        plain,
        *(
            Arm(name=name, decoder=Decoder(target=target, drafter=drafts, policy=rule))
            for name, rule in rules.items()
        ),
    ]


def _decode(
    arms: list[Arm], prompts: dict[str, str], max_new_tokens: int, gamma: int, advance: Any
) -> None:
    """Fixed work: end-of-sequence ids are ordinary tokens, so that every arm emits as many."""
    from lenity.cli.trial import take_turns
    from lenity.requests import GenerationSettings

    settings = GenerationSettings(max_new_tokens=max_new_tokens, gamma=gamma, ignore_eos=True)
    take_turns(
        arms, [[{"role": "user", "content": text}] for text in prompts.values()], settings, advance
    )


def _tell(arms: list[Arm], drafter: str, prompts: dict[str, str]) -> None:
    dtype = str(arms[0].decoder.target.dtype).removeprefix("torch.")
    count = f"{len(prompts)} prompt{'s' * (len(prompts) > 1)}"
    say(f"Decoding {count} {len(arms)} ways in {dtype}, drafter {drafter}, arms taking turns")


def _cost(target: LanguageModel, gamma: int) -> dict[int, float]:
    from lenity.cli.trial import cost_of_pass

    return cost_of_pass(target, (1, gamma + 1))


@contextmanager
def _progress(turns: int) -> Iterator[Callable[[], None]]:
    """Show a bar where somebody can see it; yield what moves it on."""
    console = err()
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(
        TextColumn("Decoding, arms taking turns"),
        *columns,
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("", total=turns)
        yield lambda: bar.advance(task)


def _section(
    arms: list[Arm], drafter: str, gamma: int, prompts: dict[str, str], cost: dict[int, float]
) -> dict[str, Any]:
    plain, strict = arms[0], arms[1]
    equal = [
        a.token_ids == b.token_ids
        for a, b in zip(plain.generations, strict.generations, strict=True)
    ]
    one, wide = cost[1], cost[gamma + 1]
    return {
        "dtype": str(plain.decoder.target.dtype).removeprefix("torch."),
        "drafter": drafter,
        "gamma": gamma,
        "prompts": list(prompts),
        "strict_equals_plain": {"equal": sum(equal), "of": len(equal)},
        "pass_seconds": {"width_1": one, f"width_{gamma + 1}": wide},
        "pass_ratio": wide / one,
        "arms": [_row(arm, plain, strict) for arm in arms],
        "why": [_why(arm, plain) for arm in arms[1:]],
    }


def _row(arm: Arm, plain: Arm, strict: Arm) -> dict[str, Any]:
    from lenity.cli.figures import ratio

    totals = arm.totals
    speed = totals.tokens_per_second
    budget = None if arm.budget is None else arm.budget * totals.requests
    return {
        "arm": arm.name,
        "policy": arm.decoder.policy.spec,
        "emitted": totals.emitted,
        "target_passes": totals.target_passes,
        "tokens_per_target_pass": totals.tokens_per_target_pass,
        "acceptance_rate": totals.acceptance_rate,
        "relaxed": totals.relaxed,
        "regret_spent_nats": totals.regret_spent,
        "budget_nats": budget,
        "tokens_per_second": speed,
        "ratio_to_plain": ratio(speed, plain.totals.tokens_per_second),
        "ratio_to_strict": ratio(speed, strict.totals.tokens_per_second),
        "repeated_4gram_rate": totals.repeated_rate,
    }


def _why(arm: Arm, plain: Arm) -> str:
    """Say what a round costs and gives, both in plain target passes as they ran in these turns."""
    from lenity.cli.figures import ratio

    totals, one = arm.totals, ratio(plain.totals.seconds, plain.totals.rounds)

    def cost(seconds: float) -> float:
        return ratio(ratio(seconds, totals.rounds), one)

    tokens = ratio(totals.emitted, totals.rounds)
    whole, drafting, target = map(
        cost, (totals.seconds, totals.draft_seconds, totals.target_seconds)
    )
    gain = ratio(tokens, whole)
    if gain > 1:
        verdict = f"{gain:.2f} times as fast as plain"
    else:
        culprit = "drafting" if drafting > target else "the wide target pass"
        verdict = f"no gain, {gain:.2f} times as fast as plain: {culprit} costs more than it saves"
    return (
        f"{arm.name}: {totals.acceptance_rate:.0%} of the draft tokens accepted. A round gives "
        f"{tokens:.2f} tokens and takes as long as {whole:.2f} plain rounds (drafting "
        f"{drafting:.2f}, target {target:.2f}): {verdict}."
    )


def _failures(main: list[Arm], others: list[Arm]) -> list[str]:
    found = []
    plain, strict = main[0], main[1]
    pairs = zip(plain.generations, strict.generations, strict=True)
    found += [
        f"float32, prompt {number}: strict differs from plain decoding"
        for number, (a, b) in enumerate(pairs, start=1)
        if a.token_ids != b.token_ids
    ]
    found += [
        f"{arm.name}, prompt {number}: spent more than its budget ({generation.regret_spent} nats)"
        for arm in (*main, *others)
        for number, generation in enumerate(arm.generations, start=1)
        if arm.budget is not None and generation.regret_spent > arm.budget
    ]
    return found


def _print(report: dict[str, Any]) -> None:
    console = out()
    console.print(
        Text(
            f"{report['model']}, {report['threads']} threads, {report['max_new_tokens']} tokens "
            f"per answer (end-of-sequence ignored), arms taking turns prompt by prompt in one "
            f"process.\n"
        )
    )
    for section in report["sections"]:
        console.print(_table(section))
        console.print(Text(_notes(section)))
        console.print()
    for failure in report["failures"]:
        console.print(Text(failure, "bold red"))


def _table(section: dict[str, Any]) -> Table:
    title = f"{section['dtype']}, drafter {section['drafter']}, gamma {section['gamma']}"
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    table.add_column("arm", no_wrap=True)
    for name in (
        "tokens\n/pass",
        "relaxed\ntokens",
        "regret spent\nof budget",
        "tokens\n/s",
        "x\nplain",
        "x\nstrict",
        "4-gram\nrepeats",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    for row in section["arms"]:
        spent, budget = row["regret_spent_nats"], row["budget_nats"]
        table.add_row(
            row["arm"],
            f"{row['tokens_per_target_pass']:.2f}",
            str(row["relaxed"]),
            "" if budget is None else f"{spent:.2f} of {budget:g}",
            f"{row['tokens_per_second']:.1f}",
            f"{row['ratio_to_plain']:.2f}",
            f"{row['ratio_to_strict']:.2f}",
            f"{row['repeated_4gram_rate']:.1%}",
        )
    return table


def _notes(section: dict[str, Any]) -> str:
    equal, width = section["strict_equals_plain"], section["gamma"] + 1
    one, wide = section["pass_seconds"].values()
    is_exact = section["dtype"] == "float32"
    lines = [
        f"Prompts: {', '.join(section['prompts'])}. Regret in nats, all prompts "
        "together; repeats are 4-grams that stood earlier in the same answer.",
        f"Strict equals plain token for token in {equal['equal']} of {equal['of']} answers"
        + (" (asserted)." if is_exact else " (near-ties may turn over in bfloat16)."),
        f"A target pass over 1 token takes {one * 1e3:.1f} ms, over {width} tokens "
        f"{wide * 1e3:.1f} ms: {section['pass_ratio']:.2f} times as long (medians).",
        *section["why"],
    ]
    if section["drafter"].startswith("self_speculative"):
        lines.append(
            "Self-speculation drafts with most of the target's own layers: it shows what strict "
            "and relaxed verification accept, at a price that a trained drafter would not have."
        )
    return "\n".join(lines)


def _print_receipt(arms: list[Arm]) -> None:
    """Print one answer of ASD in full: the first with a relaxed token, or the first."""
    from lenity.cli.receipt import draw_receipt

    arm = next(arm for arm in arms if arm.name == "asd")
    chosen = next((g for g in arm.generations if g.num_relaxed), arm.generations[0])
    console = out()
    console.rule(f"receipt of one answer under {chosen.effective_policy}", align="left")
    console.print(draw_receipt(chosen, arm.decoder.target.tokenizer))
