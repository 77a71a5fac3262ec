"""Training: configuration, a step that runs entirely on the device, and a loop that resumes after interruptions."""
