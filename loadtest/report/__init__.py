"""The report of a load test: turns a record into `report.json`, and that into `report.html`.

May import measure and everything below it. `tune` uses the page, the charts and the number formats.
"""
