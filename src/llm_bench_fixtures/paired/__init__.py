"""Two versions measured side by side: fresh processes, rounds in turn, intervals over pairs of processes."""
