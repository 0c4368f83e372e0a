"""One module for each format: the lines of a terminal, Markdown, LaTeX, and pages."""
