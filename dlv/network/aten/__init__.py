"""Recorded calls of torch by numpy: what lies outside the vocabulary, as far as dlv runs it itself.

Each function has the arguments that torch's schema names, behind the precision of the run.
"""
