"""`python -m flowinpaint` is the command line."""

from flowinpaint.cli import main

main()
