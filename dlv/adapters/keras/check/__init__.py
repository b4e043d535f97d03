"""A network read from a Keras file compared with the model in Keras, in a process of its own."""
