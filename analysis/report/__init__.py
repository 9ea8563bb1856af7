"""The report: one self-contained HTML page made of marts, without network, fonts or scripts.

data      what is read of the database         text    numbers and strangers' text, for people
findings  sentences made of the numbers        model   sections, figures and tables as data
share, empty, feerate, coverage, methods       one section each, of parts and charts
svg       charts as inline SVG                 page    sections into HTML, written as one file
"""

from analysis.report.page import write

__all__ = ["write"]
