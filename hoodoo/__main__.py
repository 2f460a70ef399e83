"""Entry point of `python -m hoodoo`."""

import sys

from hoodoo.cli.main import main

sys.exit(main())
