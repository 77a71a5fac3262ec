"""`flowinpaint reproduce`: the paper's tables and figures, from training the networks to the finished pages.

`experiment` lists networks and methods; `networks` trains, `runs` fills frames of `frames` and keeps the results;
`session` does all that for the tables and figures (`tables`, `curves`, `cost`, `samples`), each written as a `page`.
"""
