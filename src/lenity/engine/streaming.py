"""Committed tokens to text, a piece at a time, never taken back.

Held back until it is certain: incomplete UTF-8, and text that may still become a stop string.
The pieces concatenate to the final text.
"""

from __future__ import annotations

from collections.abc import Sequence

from lenity.models.base import Tokenizer

_INCOMPLETE = "\ufffd"


class TextStream:
    """The text of one request."""

    def __init__(
        self, tokenizer: Tokenizer, stops: Sequence[str] = (), *, include_stop: bool = False
    ) -> None:
        """Watch for ``stops``; the text ends before (or, with ``include_stop``, behind) one."""
        self._tokenizer, self._stops, self._include_stop = tokenizer, tuple(stops), include_stop
        self._ids: list[int] = []
        self._window_start = 0  # decoding starts here, so that spaces between tokens come out right
        self._num_decoded = 0  # tokens whose text is in self._text
        self._num_ahead = 0  # characters in self._text of the tokens that are still incomplete
        self._text = ""
        self._num_taken = 0
        self._is_closed = False

    def push(self, token_id: int) -> str | None:
        """Add a committed token; return the stop string it completed, if any."""
        assert not self._is_closed
        self._ids.append(token_id)
        return self._add(self._decode_new(is_last=False))

    def close(self) -> None:
        """Let go of what was held back: nothing follows."""
        if not self._is_closed:
            self._add(self._decode_new(is_last=True))
            self._is_closed = True

    @property
    def text(self) -> str:
        """Return the text so far, held-back pieces excluded until they are decided."""
        return self._text

    @property
    def num_taken(self) -> int:
        """Return how many characters were taken."""
        return self._num_taken

    def take(self) -> str:
        """Return what became certain since the last call."""
        end = len(self._text) - (0 if self._is_closed else self._num_undecided())
        piece = self._text[self._num_taken : end]
        self._num_taken = max(self._num_taken, end)
        return piece

    def _decode_new(self, *, is_last: bool) -> str:
        known = self._tokenizer.decode(self._ids[self._window_start : self._num_decoded])
        new = self._tokenizer.decode(self._ids[self._window_start :])[len(known) :]
        # what stands before incomplete UTF-8 is certain, and may complete a stop string
        certain = new if is_last else new.rstrip(_INCOMPLETE)
        piece = certain[self._num_ahead :]
        self._num_ahead = len(certain)
        if new and certain == new:
            self._window_start, self._num_decoded = self._num_decoded, len(self._ids)
            self._num_ahead = 0
        return piece

    def _add(self, piece: str) -> str | None:
        searched = len(self._text)
        self._text += piece
        found = None
        for stop in self._stops:
            at = self._text.find(stop, max(0, searched - len(stop) + 1))
            if at >= 0 and (found is None or at < found[0]):
                found = (at, stop)
        if found is None:
            return None
        at, stop = found
        self._text = self._text[: at + (len(stop) if self._include_stop else 0)]
        self._is_closed = True
        return stop

    def _num_undecided(self) -> int:
        """Return the length of the longest tail that is the beginning of a stop string."""
        longest = max((len(s) - 1 for s in self._stops), default=0)
        for length in range(min(longest, len(self._text)), 0, -1):
            tail = self._text[-length:]
            if any(s.startswith(tail) for s in self._stops):
                return length
        return 0
