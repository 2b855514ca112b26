"""The scripts here run in environments of other tools: nothing in them is collected."""

collect_ignore_glob = ["with_*.py"]
