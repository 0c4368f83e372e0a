"""Measuring: models and workloads in, values out. No run is kept, judged or shown here."""
