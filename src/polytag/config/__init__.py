"""Configuration of a training: settings, groups of settings, recipes and search ranges, checked in one place."""
