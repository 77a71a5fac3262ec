from flowinpaint.reproduction.ranking import compare, names_at, rank

HERE = {"Ours": 1.0, "EED": 0.9, "LB": 1.0002, "WGAIN": 3.0, "PD": None, "extra": 0.5}


def test_methods_stand_ahead_level_or_behind_the_best_first() -> None:
    found = rank(HERE, "Ours")
    assert list(found.items()) == [("extra", "ahead"), ("EED", "ahead"), ("LB", "level"), ("WGAIN", "behind")]
    assert names_at(found) == ["extra, EED", "LB", "WGAIN"]  # LB reads as 1.000


def test_without_the_base_nobody_stands_anywhere() -> None:
    assert rank({"EED": 1.0, "Ours": None}, "Ours") == rank({"EED": 1.0}, "Ours") == {}


def test_where_the_paper_has_it_otherwise_is_told() -> None:
    paper = {"Ours": 0.4, "EED": 0.5, "LB": 0.43, "WGAIN": 0.8, "PD": 0.55, "extra": None}
    found = compare(HERE, paper, "Ours")
    assert found.compared == 3  # EED, LB and WGAIN: of PD there is no figure here, of extra none in the paper
    assert found.differing == {"EED": "behind", "LB": "behind"}
    assert found.verdict == "no (1 of 3): EED is behind in the paper, LB is behind in the paper"
    assert compare(paper, paper, "Ours").verdict == "yes (4 of 4)"


def test_what_the_paper_has_level_neither_agrees_nor_differs() -> None:
    found = compare({"Ours": 1.0, "LB": 2.0, "EED": 2.0}, {"Ours": 1.07, "LB": 1.07, "EED": 1.11}, "Ours")
    assert found.compared == 1
    assert found.verdict == "yes (1 of 1)"
    assert compare({"Ours": 1.0, "LB": 2.0}, {"Ours": 0.23, "LB": 0.23}, "Ours").verdict == "nothing to compare"
    assert compare({"Ours": 1.0, "LB": 2.0}, {}, "Ours").verdict == "nothing to compare"


def test_no_names_are_a_dash() -> None:
    assert names_at({}) == ["–", "–", "–"]
    assert names_at({"a": "behind", "b": "behind"}, "behind") == ["a, b"]
