"""One repository on disk: where its parts lie, its locks, its changes, and names for versions.

`handle` has `Repository`, and `Repository.change` through which everything is written;
`revisions` reads `lenet@3~1`; `git_files` keeps small files in `files.git`.
"""
