"""`python -m quant.cli`."""

from quant.cli import main

if __name__ == "__main__":
    main()
