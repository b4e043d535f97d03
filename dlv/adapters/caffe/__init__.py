"""Caffe: prototxt and caffemodel, both read into a network; `files` is the adapter."""
