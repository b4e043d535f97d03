"""Operators of ONNX by numpy: those that a file's reader kept as they are, since what the
vocabulary has as attributes is computed there.

Each function has the inputs of ONNX's schema, behind the precision of the run, then its attributes
by name; what changed between versions is told apart by the opset. An attribute that a function
does not name refuses the operator.
"""
