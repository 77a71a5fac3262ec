"""The page of results (`docs/results.md`) and the README's table; `docs/write_results.py` writes them."""
