"""Building with Apache TVM's Relax: what the target `tvm` is made of."""
