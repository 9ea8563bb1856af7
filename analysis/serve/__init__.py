"""Serve a built database as web pages and as an HTTP API; nothing here can change it.

results         opens the database, bounds each question, and notices a new build
lookups         asks for pools, blocks, coverage; api and pages answer with the same rows
api             /api/v1 as JSON, and CSV at addresses that stay
answers         writes JSON, CSV and problems
pages           the pages with permalinks; drawing draws their small charts
feed            the findings as Atom
live_feed       follows the live stream of a running collector
request_filter  refuses strangers: host names, origins, tokens
bounded_server  runs the server and bounds its connections
app             puts these together; address says where the page listens
"""
