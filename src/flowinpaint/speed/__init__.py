"""`flowinpaint speed`: time and memory of methods, compared with what the machine can do at best."""
