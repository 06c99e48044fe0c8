"""`gguftools transplant`: a donor gets the vocabulary of a target."""
