"""CustomResourceDefinitions, generated from the models: `python -m merlot.spec.crd [--check] DIRECTORY`."""
