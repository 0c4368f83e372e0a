"""The charts: each is computed once, as values of `spec`, then drawn by matplotlib (`pictures`) or written for plotly.

`variants` has the looks of variants, their values and charts of them, `whole_run` a chart each of what a run shows.
"""
