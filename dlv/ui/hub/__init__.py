"""The pages of a hub: search, namespaces, repositories, accounts.

A repository is shown from a mirror of its metadata, by the pages that `dlv ui` has, too.
"""
