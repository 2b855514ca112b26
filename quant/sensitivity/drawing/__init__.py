"""Random directions, and their products with what formats add. Modules of this room import torch; import them late."""
