"""Reports, pages and notebooks: the same components over the records that commands print.

A module a subject: `version`, `comparison`, `answer`, `sweep`, `evaluation`, `storage`, `curves`
make sections of it. `report` writes them to a file, `site` serves them live and read-only, and
`notebook` shows them in Jupyter. Drawings live in `report/`, what is printed in `views/`.
"""
