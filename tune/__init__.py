"""Finding the settings with which a model is served best on a machine, by serving and loading it."""
