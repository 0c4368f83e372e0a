"""Whether a run is worse than another: rules, verdicts, the comparison, the decision and its exit status.

Nothing is measured or formatted here.
"""
