"""Writes the report: one self-contained HTML page made from marts, which needs no network and no fonts.

data      reads the marts of a database        text      writes numbers and foreign text for people
sections  answers one question per module      model     defines sections, figures and tables as data
tables    makes tables from rows of a mart     charts    draws charts as inline SVG
headline  makes the headline numbers           findings  collects the sentences and the open questions
export    offers figures and tables as files   page      turns the sections into one HTML file
"""

from analysis.report.page import write

__all__ = ["write"]
