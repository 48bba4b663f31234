"""Token views: pieces add up to the text, whatever a token completes."""

from lenity.workbench.samples import make_samples, pieces_of, read_samples, samples_text
from tests.cases.rig import CharTokenizer
from tests.workbench.handmade import request


class Bytes:
    """Ids are bytes of UTF-8: a character may take several."""

    special_ids: frozenset[int] = frozenset()

    def decode(self, token_ids, *, skip_special=True):
        return bytes(token_ids).decode(errors="replace")


def test_pieces_add_up_and_a_character_is_whole():
    text = "aé🙂b"
    pieces = pieces_of(Bytes(), list(text.encode()))
    assert "".join(pieces) == text
    assert len(pieces) == len(text.encode())
    assert "\ufffd" not in "".join(pieces)
    assert pieces[1:3] == ("", "é")


def test_a_torn_end_is_shown_as_it_is():
    assert "".join(pieces_of(Bytes(), [97, 0xC3])) == "a\ufffd"


def arm(name, kinds, count=6):
    return [
        request((kinds(i), 3), arm=name, item_id=str(i), prompt_ids=(1,), regret=1.0 + i)
        for i in range(count)
    ]


def test_the_largest_regrets_and_the_smallest_are_shown(tmp_path):
    strict = arm("strict", lambda i: "aab")
    relaxed = arm("relaxed", lambda i: "xab" if i else "aab")
    views = make_samples([*strict, *relaxed], ("strict", "relaxed"), CharTokenizer(), count=3)
    assert [view.item_id for view in views] == ["5", "4", "0"]
    assert views[0].texts[1].details[0].regret == 6.0
    (tmp_path / "samples.json").write_text(samples_text(views))
    assert read_samples(tmp_path) == views
    assert read_samples(tmp_path / "nowhere") == ()


def test_requests_that_one_arm_lacks_are_not_shown():
    strict, relaxed = arm("strict", lambda i: "aab"), arm("relaxed", lambda i: "xab", count=2)
    views = make_samples([*strict, *relaxed], ("strict", "relaxed"), CharTokenizer())
    assert {view.item_id for view in views} == {"0", "1"}
