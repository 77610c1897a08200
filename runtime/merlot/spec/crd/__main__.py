"""`python -m merlot.spec.crd`."""

from merlot.spec.crd.definitions import main

raise SystemExit(main())
