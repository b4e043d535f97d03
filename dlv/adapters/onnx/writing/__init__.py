"""ONNX files written from networks; `writer` is the way in, `ops*` write the operators."""
