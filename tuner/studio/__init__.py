"""The studio: pages for the browser, which use the REST service.

`pages` has them as ES modules and style sheets, which the service sends as they are written
(`tuner.api.pages`), and in `pages/vendor` the library that draws charts. The report's own file
contains two of them (`tuner.report.page`).
"""
