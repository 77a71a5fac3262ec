"""Where images and flow come from."""
