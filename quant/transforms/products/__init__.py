"""What transforms of products share: the error of a product when what it multiplies is rounded."""
