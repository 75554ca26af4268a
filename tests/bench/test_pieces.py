import pytest

from lehd.bench import pieces


@pytest.mark.parametrize(("problem", "nodes"), [("TSP", "100"), ("CVRP", "40")])
def test_pieces_gain_no_less_than_wholes_and_all_that_the_search_gains(problem, nodes, capsys):
    pieces.main(["--problem", problem, "--nodes", nodes, "--instances", "3", "--iterations", "8"])
    header, _, *lines = capsys.readouterr().out.strip().splitlines()
    assert header.count("|") == 6
    rows = [[float(cell) for cell in line.strip("| ").split("|")] for line in lines]
    assert [row[0] for row in rows] == [2, 4, 6, 8]
    assert all(row[1] <= row[2] for row in rows)
    before = 0.0
    for row in rows:
        assert row[3] <= before
        before = row[3]
    assert all(row[4] <= 0 for row in rows)
    assert sum(row[2] for row in rows) > 0


def test_the_first_row_of_a_single_iteration_is_the_last(capsys):
    pieces.main(["--nodes", "20", "--instances", "1", "--iterations", "1"])
    assert len(capsys.readouterr().out.strip().splitlines()) == 3
