"""Durable calls, locks, paths and processes: what a crash or another program could break.

`durable` writes, syncs and publishes files; `locks` waits for others; `user_files` writes outside
`.dlv`; `children` starts processes that end with dlv. Nothing here knows what the files hold.
"""
