"""The studio: pages for the browser, which use the REST service.

Their sources are ES modules in `studio/` of the repository; `make studio` and the build of a wheel
bundle them into `tuner/studio/assets`. The service sends them (`tuner.api.pages`).
"""
