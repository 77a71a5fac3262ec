"""Training: a configuration, one step that never leaves the device, and a loop that survives being killed."""
