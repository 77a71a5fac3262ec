"""The neuroexplicit model: the method on one page (`method.py`), its network, and its backends."""
