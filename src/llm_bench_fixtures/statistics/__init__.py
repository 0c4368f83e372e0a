"""Centres, intervals, ratios and variances of plain numbers.

Nothing here knows a record, a run or a metric.
"""
