"""Networks edited: nodes put in, taken out, resized, and which weights the result can reuse."""
