"""The subcommands of `llm-bench`, one module each."""
