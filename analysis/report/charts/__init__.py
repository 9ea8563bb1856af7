"""Draws the charts of the report as inline SVG."""
