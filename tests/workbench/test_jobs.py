import pytest

from lenity.errors import ConfigError, ProtocolError
from lenity.tasks.base import Item, Score, Task, user
from lenity.tasks.chat import RenderOptions, text_hash
from lenity.workbench.jobs import combine_hashes, make_jobs, prompts_digest, scorer_of
from tests.cases.rig import CharTokenizer
from tests.workbench.made import record


class Echo(Task):
    type: str = "echo"
    is_ready: bool = True

    def check_scorer(self):
        if not self.is_ready:
            raise ConfigError("not ready")

    def judge(self, item, answer):
        return Score(value=float(answer == item.reference), detail=f"read {answer!r}")


ITEMS = [
    Item(id="a", prompt="āb", reference="one", family="letters"),
    Item(id="b", messages=(user("āc"),), reference="two"),
]


def test_items_become_prompts_with_one_hash():
    jobs, digest = make_jobs(Echo(max_new_tokens=9), ITEMS, CharTokenizer())
    assert [(job.task, job.item_id, job.max_new_tokens) for job in jobs] == [
        ("echo@1", "a", 9),
        ("echo@1", "b", 9),
    ]
    assert jobs[0].prompt_ids == tuple(CharTokenizer().encode("āb"))
    assert digest == text_hash(RenderOptions())
    assert jobs[0].name == "echo@1 a"
    assert [job.family for job in jobs] == ["letters", "all"]


def test_several_templates_have_a_hash_of_their_own():
    assert combine_hashes(["x", "x"]) == "x"
    assert combine_hashes(["x", "y"]) == combine_hashes(["y", "x", "y"])
    assert combine_hashes(["x", "y"]) not in ("x", "y")


def test_the_digest_stands_for_prompts_not_their_order():
    jobs, _ = make_jobs(Echo(), ITEMS, CharTokenizer())
    other, _ = make_jobs(Echo(), ITEMS, CharTokenizer(), RenderOptions(system="Ā"))
    assert prompts_digest(jobs) == prompts_digest(jobs[::-1])
    assert len({prompts_digest(jobs), prompts_digest(jobs[:1]), prompts_digest(other)}) == 3


def test_a_scorer_reads_the_record_of_an_item():
    score = scorer_of((Echo(), ITEMS))
    said = score(record("b", task="echo@1", text="two"))
    assert (said.value, said.detail) == (1.0, "read 'two'")
    assert score(record("a", task="echo@1", text=None)).value == 0.0
    with pytest.raises(ProtocolError, match="got toy@1 a"):
        score(record("a"))
    with pytest.raises(ConfigError, match="not ready"):
        scorer_of((Echo(is_ready=False), ITEMS))
