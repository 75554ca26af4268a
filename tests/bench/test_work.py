import pytest

from lehd.bench.work import files_table, labels_table, overhead_table, seconds_per_unit
from lehd.errors import LehdError
from lehd.work.here import Here
from lehd.work.local import Pool
from lehd.work.units import Needs, Unit
from tests.work.jobs import Troubled


def test_tables_have_a_row_for_each_engine():
    pytest.importorskip("hygese")
    engines = {"bare loop": (Here(), Needs()), "2 processes": (Pool(2), Needs())}
    for table in (overhead_table(engines, 20), labels_table(engines, 10, 5, 5), files_table(engines, 3, 5, 1)):
        rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
        assert [row[0] for row in rows] == list(engines)
        assert all(float(cell.strip(" %|")) >= 0 for row in rows for cell in row[1:])
    assert labels_table(engines, 10, 5, 5).splitlines()[2].endswith("100 % |")


def test_a_unit_that_fails_is_no_measurement():
    with pytest.raises(LehdError, match="failed"):
        seconds_per_unit([Unit("1", 1)], Troubled({1: "raise"}), Pool(1), Needs())
