"""Serves a built database as web pages and as an HTTP API; nothing here can change it.

results    opens the database, bounds each question, and notices a new build
questions  asks for pools, blocks, transactions, coverage; api and pages answer with the same rows
api        /api/v1 as JSON, and CSV at addresses that stay    answers  writes JSON, CSV and problems
pages      the pages with permalinks                          drawing  draws their small charts
feed       the findings as Atom
guard      refuses strangers: host names, origins, tokens     listener bounds connections
app        puts these together                                address  where the page listens
"""
