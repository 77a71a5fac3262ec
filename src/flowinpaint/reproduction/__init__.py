"""`flowinpaint reproduce`: the paper's tables and figures, from training the networks to the finished pages.

`study` says which networks and methods there are and `scale` how large everything is; `networks` trains what is
missing, `measuring` fills frames, and `tables`, `curves`, `cost` and `samples` make a `report` of it.
"""
