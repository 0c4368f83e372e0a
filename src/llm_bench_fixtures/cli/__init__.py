"""`llm-bench` and its commands, one module each. They work on saved runs or on two versions, without pytest.

A command parses arguments and prints; other rooms compute what it prints.
"""
