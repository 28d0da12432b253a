"""The report of a load test: turns a record into `loadtest.json`, and that into `loadtest.html`.

May import measure and everything below it. `tune` uses the page, the charts and the number formats.
"""
