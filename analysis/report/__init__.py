"""Writes the report: one self-contained HTML page made from marts, without network, fonts or scripts.

data      reads the marts of a database        text    writes numbers and foreign text for people
sections  answers one question per module      model   defines sections, figures and tables as data
tables    makes tables from rows of a mart     charts  draws charts as inline SVG
findings  collects the headline sentences      page    turns the sections into one HTML file
export    offers figures and tables as files
"""

from analysis.report.page import write

__all__ = ["write"]
