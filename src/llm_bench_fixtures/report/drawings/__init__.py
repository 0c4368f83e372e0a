"""The report's pictures, each drawn from what the page's charts show: fit for a slide.

Nothing that a reader needs is in a legend: points and lines have their names beside them.
"""
