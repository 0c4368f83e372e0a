"""What the tests of a run share: what they measure with, how its variants are loaded, what is kept of the reference.

How a test asks for it is the plugin's business, and a finished run is kept, judged and shown elsewhere.
"""
