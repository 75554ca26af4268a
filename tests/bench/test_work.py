import pytest

from lehd.bench.work import files_table, labels_table, overhead_table, spent_per_unit
from lehd.errors import LehdError
from lehd.work.here import Here
from lehd.work.local import Pool
from lehd.work.units import Needs, Unit
from tests.work.jobs import Troubled, slow


def test_tables_have_a_row_for_each_engine():
    pytest.importorskip("hygese")
    engines = {"bare loop": (Here(), Needs()), "2 processes": (Pool(2), Needs())}
    for table in (overhead_table(engines, 20), labels_table(engines, 10, 5, 5), files_table(engines, 3, 5, 1)):
        rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
        assert [row[0] for row in rows] == list(engines)
        assert all(float(cell.strip(" %|")) >= 0 for row in rows for cell in row[1:])


def test_the_time_of_others_does_not_count_as_work():
    units = [Unit(str(number), number) for number in range(12)]
    spent = spent_per_unit(units, slow, Here(), Needs(), warm=2)
    assert 0.05 <= spent.working <= spent.seconds
    assert spent.cpu < 0.05  # it slept


def test_a_unit_that_fails_is_no_measurement():
    with pytest.raises(LehdError, match="failed"):
        spent_per_unit([Unit("1", 1)], Troubled({1: "raise"}), Pool(1), Needs())
