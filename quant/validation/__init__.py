"""What must hold before a deploy: nothing that was written before is trusted."""
