"""The charts: each is computed once, as values of `spec`, then drawn by matplotlib (`draw`) or written for plotly.

`variants` has the looks of variants and their values, `pictures` the files on disk; the others are charts by what they
show.
"""
