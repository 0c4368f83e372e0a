"""What people read of runs, comparisons and histories. Nothing is measured or judged here.

Start at `files`, which writes the report of one run or of several: `findings` says all that follows from a run, and
each format is made of the findings. `about` has the facts and footnotes, `page/` the page.
Several runs: `agreement` says how far they agree, `runs` has them beside each other.
Saved runs: `history` is the list, the steps in words, and the page.

`words/` has the sentences, `tables/` cells and columns, `charts/` what is drawn, `judged/` what changed, and
`renderers/` one module for each format.
"""
