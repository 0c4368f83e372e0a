"""What is judged, as rows: two saved runs, or two versions in turns. Causes group the rows that moved alike.

`rows` and `causes` are the content, `changes`, `gate` and `pair` put it into words, and `renderer` draws it.
"""
