"""Compiled code and thread pools that several packages use."""
