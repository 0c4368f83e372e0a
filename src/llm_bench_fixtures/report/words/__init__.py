"""What a run says, in sentences: the answer, what else follows, and what is unusual.

Nothing is decided here: `answer/` does, and these modules put it into words, the same for every format.
"""
