"""One module for each format: how cells are written, the lines of a terminal, Markdown, LaTeX, and pages."""
