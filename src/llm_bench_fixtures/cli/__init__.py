"""`llm-bench` and its commands, one module each: what works on saved runs or on two versions, without pytest.

A command parses arguments and prints; what it prints is computed elsewhere.
"""
