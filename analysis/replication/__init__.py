"""Checks statements of a published paper on the data that its authors published."""
