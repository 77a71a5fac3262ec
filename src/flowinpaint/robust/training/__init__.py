"""Training of the assessor on generated scenes."""
