"""Bytes: event files, protobuf messages, and the series and chunks that packs hold."""
