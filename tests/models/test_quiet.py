import logging as python_logging
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


def test_the_hubs_lines_about_failed_tries_are_not_heard(caplog):
    hub = python_logging.getLogger("huggingface_hub")
    before = hub.level
    with quiet():
        python_logging.getLogger("huggingface_hub.utils._http").warning("Retrying in 1s")
    python_logging.getLogger("huggingface_hub.utils._http").warning("heard")
    assert hub.level == before
    assert [record.message for record in caplog.records if "heard" in record.message] == ["heard"]
    assert "Retrying" not in caplog.text
