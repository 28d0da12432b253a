"""Builds the HTML report of an export, and the same figures as JSON.

Takes a `ReportData`, writes `index.html` and `report.json`. Charts are plain SVG, so that the page opens
offline without a chart library. Imports `measure`, and the result types of `parity` and `precision`.
"""
