"""All that knows pytest and pytest-benchmark: hooks, fixtures, what they call, the end of a run, the worker of a pair.

Nothing is loaded, measured, judged or formatted here; that is asked of the rooms below.
"""
