"""All that knows pytest and pytest-benchmark: hooks, fixtures, what a run's tests share, the end of a run.

Nothing is measured, judged or formatted here; that is asked of the rooms below.
"""
