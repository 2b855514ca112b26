"""What targets of NVIDIA's engines share: GPU capabilities, building an engine in a process of its own, reading its list of layers."""
