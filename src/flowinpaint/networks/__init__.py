"""Base class, registry, weights files and shared parts of all networks."""
