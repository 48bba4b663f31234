import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lenity.engine.decode import Decoder
from lenity.engine.streaming import TextStream
from lenity.types import FinishReason
from tests.engine.drive import TapeModel
from tests.engine.text import Pieces, byte_tokenizer, cut_into
from tests.toys import ScriptedDrafter

SAMPLE = "aé🙂b👩‍🚀 ENDé END. 🙂"
texts = st.text(alphabet="ab é🙂👩E\ufffdN", max_size=12)


def fed(pieces, stops=(), *, include_stop=False):
    """Push every piece; return the chunks, the stop that matched, and how many were pushed."""
    stream = TextStream(Pieces(pieces), stops, include_stop=include_stop)
    chunks, matched, pushed = [], None, 0
    for index in range(len(pieces)):
        pushed += 1
        matched = stream.push(index)
        chunks.append(stream.take())
        if matched is not None:
            break
    stream.close()
    chunks.append(stream.take())
    assert stream.take() == ""
    assert "".join(chunks) == stream.text
    return chunks, matched, pushed


@given(texts, st.lists(st.integers(0, 40), max_size=12))
def test_pieces_concatenate_to_the_text_however_it_is_cut(text, cuts):
    chunks, matched, _ = fed(cut_into(text.encode(), cuts))
    assert "".join(chunks) == text
    assert matched is None
    if "\ufffd" not in text:
        assert "\ufffd" not in "".join(chunks)


@given(
    texts,
    st.lists(st.integers(0, 40), max_size=12),
    st.lists(st.text(alphabet="ab é🙂EN", min_size=1, max_size=3), min_size=1, max_size=3),
    st.booleans(),
)
@settings(max_examples=300)
def test_a_stop_string_is_found_at_the_token_that_completes_it(text, cuts, stops, include_stop):
    pieces = cut_into(text.encode(), cuts)
    chunks, matched, pushed = fed(pieces, stops, include_stop=include_stop)
    # the twin: decode the whole prefix after every token; what is incomplete stays out
    for count in range(1, len(pieces) + 1):
        so_far = b"".join(pieces[:count]).decode("utf-8", "ignore")
        hits = [(so_far.index(stop), order) for order, stop in enumerate(stops) if stop in so_far]
        if hits:
            at, order = min(hits)
            end = at + (len(stops[order]) if include_stop else 0)
            assert (matched, pushed, "".join(chunks)) == (stops[order], count, so_far[:end])
            return
    assert (matched, "".join(chunks)) == (None, text)


def test_text_that_may_become_a_stop_string_is_held_back():
    chunks, matched, _ = fed([b"x", b"E", b"N", b"x", b"E", b"N", b"D", b"y"], ["END"])
    assert chunks == ["x", "", "", "ENx", "", "", "", ""]
    assert matched == "END"
    kept, _, _ = fed([b"x", b"E", b"N", b"D"], ["END"], include_stop=True)
    assert kept == ["x", "", "", "END", ""]
    unfinished, matched, _ = fed([b"x", b"E", b"N"], ["END"])
    assert unfinished == ["x", "", "", "EN"]  # let go of at the end
    assert matched is None


def test_incomplete_utf8_is_held_back_but_not_what_stands_before_it():
    smile = "🙂".encode()
    chunks, _, _ = fed([b"a" + smile[:1], smile[1:3], smile[3:] + b"b"])
    assert chunks == ["a", "", "🙂b", ""]
    broken, _, _ = fed([b"a", smile[:2]])
    assert broken == ["a", "", "\ufffd"]  # nothing follows: shown as what it is


def test_a_stop_string_before_incomplete_utf8_is_not_missed():
    smile = "🙂".encode()
    chunks, matched, pushed = fed([b"END" + smile[:1], smile[1:], b"more"], ["END"])
    assert (chunks, matched, pushed) == (["", ""], "END", 1)


def test_special_tokens_are_no_text():
    tokenizer = Pieces([b"a", b"<eos>", b"b"], special_ids=frozenset({1}))
    stream = TextStream(tokenizer, ["<eos>"])
    assert [stream.push(i) for i in (0, 1, 2)] == [None] * 3
    stream.close()
    assert stream.text == "ab"


class WordPieces(Pieces):
    """Like SentencePiece: a token begins with a space, which the first one of a text loses."""

    def decode(self, token_ids, *, skip_special=True):
        return super().decode(token_ids, skip_special=skip_special).removeprefix(" ")


def test_a_token_is_decoded_behind_the_one_before_it():
    tokenizer = WordPieces([b" one", b" two", b"<pad>", b" three"], special_ids=frozenset({2}))
    stream = TextStream(tokenizer)
    for token_id in (0, 1, 2, 3, 2, 2, 1):
        stream.push(token_id)
    stream.close()
    assert stream.text == tokenizer.decode([0, 1, 2, 3, 2, 2, 1]) == "one two three two"


def test_nothing_is_pushed_behind_the_end():
    stream = TextStream(byte_tokenizer(), ["b"])
    assert stream.push(ord("b")) == "b"
    with pytest.raises(AssertionError):
        stream.push(ord("c"))


# ------------------------------------------------------------------------------- through the engine


@given(
    cuts=st.lists(st.integers(0, 60), max_size=30),
    gamma=st.integers(0, 6),
    right=st.sets(st.integers(0, 6)),
    stop=st.sampled_from([(), ("END",), ("é E", "🚀"), (".", " EN")]),
    include_stop=st.booleans(),
    budget=st.integers(1, 40),
)
@settings(max_examples=30)
def test_a_stream_is_the_generation_in_pieces(cuts, gamma, right, stop, include_stop, budget):
    pieces = cut_into(SAMPLE.encode(), cuts)
    vocabulary = [*sorted(set(pieces)), b"~", b"^"]
    tape = [vocabulary.index(piece) for piece in pieces] + [len(vocabulary) - 1]
    model = TapeModel(
        tape, len(vocabulary), tokenizer=Pieces(vocabulary), eos=(len(vocabulary) - 1,)
    )
    decoder = Decoder(
        target=model,
        drafter=ScriptedDrafter(script=model.script(*right)),
        max_batch_size=1,  # the second request waits
    )
    asked = {
        "gamma": gamma,
        "max_new_tokens": budget,
        "stop": stop,
        "include_stop": include_stop,
    }
    prompts = [[0], [0]]
    expected = decoder.generate(prompts, **asked)
    chunks = list(decoder.stream(prompts, **asked))
    for index, whole in enumerate(expected):
        own = [chunk for chunk in chunks if chunk.index == index]
        assert "".join(chunk.text for chunk in own) == whole.text
        assert sum((chunk.token_ids for chunk in own), ()) == whole.token_ids
        assert [len(chunk.token_ids) for chunk in own] == [r.emitted for r in whole.rounds]
        assert [chunk.generation is not None for chunk in own] == [False] * (len(own) - 1) + [True]
        last = own[-1].generation
        assert (last.text, last.token_ids) == (whole.text, whole.token_ids)
        assert (last.finish_reason, last.stop_match) == (whole.finish_reason, whole.stop_match)
        if whole.finish_reason is FinishReason.STOP and isinstance(whole.stop_match, str):
            assert whole.text.endswith(whole.stop_match) or not include_stop
        else:
            end = (whole.stop_match is not None) * len(vocabulary[-1])
            said = b"".join(vocabulary[i] for i in whole.token_ids).decode("utf-8", "replace")
            assert whole.text == said
            assert end == 0 or said.endswith("^")


def test_a_stream_without_a_tokenizer_carries_tokens_only():
    model = TapeModel([1, 2, 3, 4], 8)
    chunks = list(Decoder(target=model).stream([0], max_new_tokens=3))
    assert [chunk.token_ids for chunk in chunks] == [(1,), (2,), (3,)]
    assert {chunk.text for chunk in chunks} == {""}
    assert chunks[-1].generation.text is None
