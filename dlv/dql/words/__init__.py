"""The grammar: from the text of a query to its tree; `parser` is the way in, `ast` the tree."""
