"""Loading without progress bars and advice that concerns nobody here."""

from __future__ import annotations

import contextlib
import logging as python_logging
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence progress bars, log lines and warnings inside the block only.

    Those of transformers, and the hub's lines about every failed try: whoever loads says once
    that it could not be reached.
    """
    from transformers.utils import logging

    hub = python_logging.getLogger("huggingface_hub")
    hub_level = hub.level
    hub.setLevel(python_logging.ERROR)
    verbosity, had_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        hub.setLevel(hub_level)
        logging.set_verbosity(verbosity)
        if had_bars:
            logging.enable_progress_bar()
