"""Measuring: a model and a workload in, values out. Nothing here keeps, compares or shows what was measured."""
