"""What is measured of a loaded model. Each module takes a LoadedModel and returns plain values."""
