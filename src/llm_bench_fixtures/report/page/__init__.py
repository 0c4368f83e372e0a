"""The page report.html: what its template shows is computed here, once, from the findings.

Nothing is computed in a template. Charts are figures of plotly as plain JSON, which the page's script draws.
"""
