"""`python -m monitor` is `specwatch`."""

from monitor.cli import main

main()
