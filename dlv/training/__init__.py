"""Trials: what `evaluate` trains, in worker processes or on Ray, decided by a ledger.

`ledger` says who trains what and which trials go on, `workers` are the processes, `trainers`
train. `config` resolves a configuration for one network. Versions and queries are unknown here.
"""
