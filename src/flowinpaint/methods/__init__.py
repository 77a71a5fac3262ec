"""Methods of `inpaint`: the registry, and the methods without a network."""
