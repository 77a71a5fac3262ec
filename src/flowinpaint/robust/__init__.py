"""Imperfect input: noise, wrong vectors, and what the user knows about them."""
