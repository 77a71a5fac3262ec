"""`flowinpaint speed`: time and memory of methods, compared with the machine's peak rates."""
