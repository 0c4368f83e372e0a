"""What a run measured, as plain values, and what follows from them: metrics, table, takeaways."""
