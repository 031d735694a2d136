"""What a comparison found, to be looked at: console table, CSV, picture and one self-contained page."""

from pate.report.page import write_report
from pate.report.picture import frontier
from pate.report.rows import (
    NON_PRIVATE,
    NOT_A_GUARANTEE,
    PRIOR_ONLY,
    Row,
    console_table,
    finding,
    summary_csv,
)

__all__ = [
    "NON_PRIVATE",
    "NOT_A_GUARANTEE",
    "PRIOR_ONLY",
    "Row",
    "console_table",
    "finding",
    "frontier",
    "summary_csv",
    "write_report",
]
