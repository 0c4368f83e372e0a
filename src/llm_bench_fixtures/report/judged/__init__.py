"""What is judged, as rows: two saved runs, or two versions in turns. Causes group the rows that moved alike.

Rows and causes are in `causes`, with their tables; `changes` and `pair` put them into words.
"""
