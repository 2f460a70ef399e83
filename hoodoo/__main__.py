"""Entry point of `python -m hoodoo`, which runs the command line."""

import sys

from hoodoo.cli.main import main

sys.exit(main())
