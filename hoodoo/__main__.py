"""`python -m hoodoo`: the command line."""

import sys

from hoodoo.cli import main

sys.exit(main())
