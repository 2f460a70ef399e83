"""`python -m hoodoo`: the command line."""

import sys

from hoodoo.cli.main import main

sys.exit(main())
