"""The verbs: one file each, every one a function from frozen documents to a frozen document."""
