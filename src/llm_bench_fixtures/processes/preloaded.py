"""Imported by the process that others are forked from: imports what they will need, quietly.

What can't be imported is left to the process that needs it, which says why.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import warnings

from llm_bench_fixtures.processes.launch import ENDS_WITH_US, IMPORTS
from llm_bench_fixtures.processes.parent import hear_of_ends_only, kill_with_parent, lead_group

lead_group()
os.register_at_fork(after_in_parent=hear_of_ends_only)  # the server sets its handlers after this import
if os.environ.get(ENDS_WITH_US):
    kill_with_parent()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    for _name in filter(None, os.environ.get(IMPORTS, "").split(",")):
        with contextlib.suppress(Exception):
            importlib.import_module(_name)
    logging.disable(logging.NOTSET)
gc.collect()
gc.freeze()  # no collection in a forked process goes through the libraries' objects, nor copies the pages they lie on
