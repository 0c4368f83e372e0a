"""matplotlib, imported for pictures that are written to files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def drawing(style: Any) -> Iterator[None]:  # matplotlib types the keys one by one
    """Have matplotlib imported, with the settings of `style`.

    No window is opened, so $MPLBACKEND, which may name what isn't installed, doesn't count.
    """
    given = os.environ.get("MPLBACKEND")
    os.environ["MPLBACKEND"] = "agg"
    try:
        import matplotlib
    finally:
        os.environ.pop("MPLBACKEND")
        if given is not None:
            os.environ["MPLBACKEND"] = given
    with matplotlib.rc_context(style):
        yield
