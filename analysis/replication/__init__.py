"""Replication of published statements on the data that their authors published."""
