"""What a run says to somebody who must choose: who wins, who is tied, what is undecided. Values only.

No sentence about a run is written here.
"""
