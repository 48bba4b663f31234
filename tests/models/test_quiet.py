import warnings

import pytest
from transformers.utils import logging

from lenity.models.quiet import quiet


def test_silence_ends_with_the_block_even_after_an_error():
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()

    def fail() -> None:
        with quiet():
            warnings.warn("unheard", stacklevel=1)
            assert logging.get_verbosity() == logging.ERROR
            assert not logging.is_progress_bar_enabled()
            raise RuntimeError("loading failed")

    with pytest.raises(RuntimeError, match="loading failed"):
        fail()
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before
    with pytest.warns(UserWarning, match="heard"):
        warnings.warn("heard", stacklevel=1)
