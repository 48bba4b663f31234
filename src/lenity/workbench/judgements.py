"""What a judge said, at rest and added up: a line an opinion, means with intervals over prompts.

An answer is known by the hash of its text, so that two arms that said the same share one opinion.
Needs no model and no torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

import numpy as np
from pydantic import Field, model_validator

from lenity.errors import ProtocolError
from lenity.tasks.base import without_thinking
from lenity.workbench.intervals import Interval, paired_difference_interval
from lenity.workbench.judge_prompts import HIGHEST, LOWEST, Better, JudgeSettings
from lenity.workbench.lines import read_lines
from lenity.workbench.manifest import parse
from lenity.workbench.pairing import Pairs
from lenity.workbench.records import Frozen, SampleRecord
from lenity.workbench.rundir import RunDir
from lenity.workbench.tables import COUNT, PLAIN, Column, Table, Unit, Value

JUDGEMENTS = "judgements.jsonl"
"""Name of the file in a run directory."""
JUDGEMENT_VERSION = 1
"""Of its lines; readers refuse a newer one."""
GRADES_APART = Unit(is_signed=True)
"""Of a difference of two grades"""
PREFERENCE = Unit(name="%", scale=100, digits=1, is_signed=True)
"""Of (won - lost) / compared"""

Key: TypeAlias = tuple[str, str, tuple[str, ...]]
"""Task, item, and the answers in the order they were shown."""


class Judgement(Frozen):
    """One opinion: a grade of one answer, or which of two is better."""

    schema_version: int = JUDGEMENT_VERSION
    """Of this line"""
    task: str
    """Name and version of the task"""
    item_id: str
    """Of the prompt within its task"""
    answers: tuple[str, ...] = Field(min_length=1, max_length=2)
    """Hashes of the texts judged, in the order shown, see hash_answer"""
    status: Literal["ok", "failed"] = "ok"
    """Whether the judge said something that can be read"""
    error: str | None = None
    """What went wrong, for a failed one"""
    grade: float | None = Field(default=None, ge=LOWEST, le=HIGHEST)
    """Of one answer"""
    better: Better | None = None
    """Of two answers"""
    reply: str | None = None
    """The judge's own words"""
    seconds: float = 0.0
    """Until its reply"""

    @model_validator(mode="after")
    def _says_one_thing(self) -> Judgement:
        is_grade = len(self.answers) == 1
        said = (self.grade is not None, self.better is not None)
        if self.status == "failed":
            if not self.error or any(said):
                raise ValueError(f"{self.item_id}: a failed judgement has an error and no opinion")
        elif said != (is_grade, not is_grade):
            raise ValueError(f"{self.item_id}: a grade of one answer, or the better of two")
        return self

    @property
    def key(self) -> Key:
        """What is judged at most once."""
        return self.task, self.item_id, self.answers


def answer_of(record: SampleRecord) -> str:
    """Return what a judge reads of a record: its text without the thinking."""
    return without_thinking(record.text or "").strip()


def hash_answer(record: SampleRecord) -> str:
    """Return 16 hex digits that stand for a record's answer."""
    return hashlib.sha256(answer_of(record).encode()).hexdigest()[:16]


def read_judgements(run: RunDir) -> list[Judgement]:
    """Return a run's judgements; none where nobody judged. Raises RunDirError."""
    file = run.path / JUDGEMENTS
    return [
        parse(Judgement, line, f"{file}, line {number}", JUDGEMENT_VERSION)
        for number, line in read_lines(file)
    ]


class JudgeSummary(Frozen):
    """What a judge thinks of two arms, over prompts that both answered and it judged.

    Repeats of a prompt are averaged. Failed judgements are in no mean.
    """

    task: str
    """Name and version of the task, or all"""
    num_graded: int
    """Prompts with a grade in both arms"""
    strict_grade: float | None = None
    """Mean over prompts; none for fewer than two, as is all that follows from it"""
    relaxed_grade: float | None = None
    """Mean over prompts"""
    difference: Interval | None = None
    """Of relaxed - strict, in grades"""
    num_compared: int
    """Prompts compared in both orders; equal answers are ties without asking"""
    won: int
    """Comparisons in which relaxed is better in both orders"""
    lost: int
    """Comparisons in which strict is better in both orders"""
    tied: int
    """All others"""
    by_place: int
    """Ties in which the judge preferred one place, whatever stood there"""
    preference: Interval | None = None
    """Of (won - lost) / compared; none for fewer than two prompts"""

    @property
    def words(self) -> str:
        """What the judge thinks, in a sentence or two."""
        parts = []
        if self.difference is not None:
            unit = GRADES_APART
            parts.append(
                f"grades {unit.text(self.difference.estimate)} "
                f"({unit.limits(self.difference)}) from a mean of {self.strict_grade:.2f} on "
                f"{self.num_graded} prompts"
            )
        if self.num_compared:
            parts.append(f"{self.won} won, {self.tied} tied, {self.lost} lost side by side")
        return "; ".join(parts) or "too few prompts judged to say anything"


def summarise_judgements(
    pairs: Pairs, judgements: Iterable[Judgement], *, compare: bool = True
) -> tuple[JudgeSummary, ...]:
    """Return a summary for each task judged, behind one of all of them where there are several.

    ``pairs`` are the arms judged, strict first; ``compare`` says whether two answers were put side
    by side.
    """
    said = {one.key: one for one in judgements}
    tasks = list(dict.fromkeys(task for task, _, _ in said))
    names = ["all", *tasks] if len(tasks) > 1 else tasks
    return tuple(_summary(name, pairs, said, compare) for name in names)


def judged(pairs: Pairs, judge: JudgeSettings | None, run: RunDir) -> tuple[JudgeSummary, ...]:
    """Return what the judge of a run thinks of its arms; nothing where there is none."""
    if judge is None:
        return ()
    return summarise_judgements(pairs, read_judgements(run), compare=judge.compare)


def _summary(name: str, pairs: Pairs, said: Mapping[Key, Judgement], compare: bool) -> JudgeSummary:
    own = Pairs(pairs=tuple(pair for pair in pairs.pairs if name in ("all", pair[0].task)))
    graded = _grades(own, said)
    outcomes = [_outcome(*pair, said) if compare else None for pair in own.pairs]
    known = [outcome for outcome in outcomes if outcome is not None]
    by_prompt: dict[tuple[str, str], list[float]] = {}
    for (strict, _), outcome in zip(own.pairs, outcomes, strict=True):
        if outcome is not None:
            by_prompt.setdefault((strict.task, strict.item_id), []).append(outcome[0])
    means = [float(np.mean(values)) for values in by_prompt.values()]
    return JudgeSummary(
        task=name,
        **graded,
        num_compared=len(means),
        won=sum(value > 0 for value, _ in known),
        lost=sum(value < 0 for value, _ in known),
        tied=sum(value == 0 for value, _ in known),
        by_place=sum(is_flip for _, is_flip in known),
        preference=paired_difference_interval(means) if len(means) > 1 else None,
    )


def _grades(pairs: Pairs, said: Mapping[Key, Judgement]) -> dict[str, float | int | Interval]:
    def grade(record: SampleRecord) -> float | None:
        found = said.get((record.task, record.item_id, (hash_answer(record),)))
        return None if found is None else found.grade

    try:
        values = pairs.values(grade, "grade")
    except ProtocolError:
        both = [p for p in pairs.pairs if None not in (grade(p[0]), grade(p[1]))]
        return {"num_graded": len({(one.task, one.item_id) for one, _ in both})}
    # differences of grades span 9, the interval is made for those that span 1
    span = HIGHEST - LOWEST
    unit = paired_difference_interval(values.differences / span)
    limits = {key: span * getattr(unit, key) for key in ("estimate", "low", "high")}
    return {
        "num_graded": len(values.prompts),
        "strict_grade": float(values.strict.mean()),
        "relaxed_grade": float(values.relaxed.mean()),
        "difference": unit.model_copy(update=limits),
    }


def _outcome(
    strict: SampleRecord, relaxed: SampleRecord, said: Mapping[Key, Judgement]
) -> tuple[int, bool] | None:
    """Return 1 won, -1 lost, 0 tied for relaxed, and whether the judge followed the place.

    Equal answers tie without being asked about, where either was graded.
    """
    ours, theirs = hash_answer(relaxed), hash_answer(strict)
    task, item = strict.task, strict.item_id
    if ours == theirs:
        graded = said.get((task, item, (ours,)))
        return None if graded is None or graded.grade is None else (0, False)
    first = said.get((task, item, (theirs, ours)))
    second = said.get((task, item, (ours, theirs)))
    if first is None or second is None or first.better is None or second.better is None:
        return None
    if (first.better, second.better) == ("second", "first"):
        return 1, False
    if (first.better, second.better) == ("first", "second"):
        return -1, False
    return 0, first.better == second.better != "neither"


def judge_table(
    summaries: Sequence[JudgeSummary], names: tuple[str, str] = ("Strict", "Relaxed")
) -> Table:
    """Return one row a task: grades and their difference, comparisons and their balance."""
    rows: list[dict[str, Value]] = [
        {name: getattr(one, name) for name in JudgeSummary.model_fields} for one in summaries
    ]
    columns = (
        Column(key="task", label="Task"),
        Column(key="num_graded", label="Prompts graded", unit=COUNT),
        Column(key="strict_grade", label=f"{names[0]} grade", unit=PLAIN),
        Column(key="relaxed_grade", label=f"{names[1]} grade", unit=PLAIN),
        Column(key="difference", label="Difference", unit=GRADES_APART),
        Column(key="num_compared", label="Prompts compared", unit=COUNT),
        Column(key="won", label="Won", unit=COUNT),
        Column(key="tied", label="Tied", unit=COUNT),
        Column(key="lost", label="Lost", unit=COUNT),
        Column(key="by_place", label="Decided by place", unit=COUNT),
        Column(key="preference", label="Won − lost", unit=PREFERENCE),
    )
    return Table.of("judge", "Judge", columns, rows, note=_NOTE)


_NOTE = (
    "Grades from 1 to 10. Won and lost: preferred in both orders; anything else is a tie. "
    "95 % intervals over prompts. A judge is a model: its opinion enters no verdict."
)


def judge_notes(settings: JudgeSettings | None, run: RunDir) -> tuple[str, ...]:
    """Return who judged, under which wording, and what it failed on; nothing without a judge."""
    if settings is None:
        return ()
    judgements, judge = read_judgements(run), settings.endpoint
    failed = [one for one in judgements if one.status == "failed"]
    notes = [
        f"Judge: {judge.model} at {judge.url}, wording {settings.prompt_version} of lenity, "
        f"greedy, {len(judgements)} opinions, {len(failed)} of them failed."
    ]
    notes += [f"Judge failed on {one.task} {one.item_id}: {one.error}" for one in failed]
    return tuple(notes)
