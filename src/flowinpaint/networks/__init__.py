"""Networks: the base class, registration, and weights on disk."""
