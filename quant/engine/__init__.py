"""The engine: a recipe is bound, its stages run or are taken from the cache, and a run folder is left behind."""
