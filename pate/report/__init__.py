"""What a comparison found, to be looked at: console table, CSV, pictures and one self-contained page."""

from pate.report.findings import finding
from pate.report.page import write_report
from pate.report.picture import frontier
from pate.report.rows import ALL_ZEROS, NOISELESS, NON_PRIVATE, NOT_A_GUARANTEE, PRIOR_ONLY, Row, released
from pate.report.tables import console_table, summary_csv

__all__ = [
    "ALL_ZEROS",
    "NOISELESS",
    "NON_PRIVATE",
    "NOT_A_GUARANTEE",
    "PRIOR_ONLY",
    "Row",
    "console_table",
    "finding",
    "frontier",
    "released",
    "summary_csv",
    "write_report",
]
