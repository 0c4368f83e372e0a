"""The charts: each is computed once, as values, and drawn by matplotlib or written for plotly."""
