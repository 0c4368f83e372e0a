"""What is judged, as rows: two saved runs, or two versions in turns. Causes group the rows that moved alike.

`causes` is the content, and the rows that they are made of, `changes`, `gate` and `pair` put it into words, and `renderer` draws it.
"""
