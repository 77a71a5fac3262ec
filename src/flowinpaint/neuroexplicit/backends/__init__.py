"""Fast ways to run a model where no gradient is wanted, one for each kind of device."""
