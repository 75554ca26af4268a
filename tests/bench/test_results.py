"""docs/results.md is what the committed result files give."""

from pathlib import Path

from lehd.bench.report import read_results, report

ROOT = Path(__file__).parent.parent.parent
PICTURES = "## Pictures"


def without_pictures(text):
    """The report but for its pictures, which need the benchmark files."""
    before, after = text.split(PICTURES)
    return before + after[after.index("\n## ") :]


def test_the_document_is_up_to_date():
    written = (ROOT / "docs" / "results.md").read_text()
    assert without_pictures(written) == without_pictures(report(read_results([ROOT / "results"]))), "run `make results`"
    for line in written.split(PICTURES)[1].splitlines():
        if line.startswith("!["):
            assert (ROOT / "docs" / line.rpartition("](")[2].rstrip(")")).is_file(), line


def test_result_files_are_small():
    assert sum(path.stat().st_size for path in (ROOT / "results").rglob("*")) < 5_000_000
