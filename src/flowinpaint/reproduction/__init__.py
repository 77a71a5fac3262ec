"""`flowinpaint reproduce`: the paper's tables and figures, from training the networks to the finished pages.

`experiment` lists networks and methods; `networks` trains, `runs` fills the frames of `frames` and saves the results;
`session` does this for the tables and figures (`tables`, `curves`, `cost`, `samples`), each written as a `page`.
"""
