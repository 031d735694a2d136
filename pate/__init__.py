"""Multi-label PATE: many teachers on disjoint private data, one student, an epsilon that is true."""

__version__ = "0.1.0"
