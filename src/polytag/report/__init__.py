"""Pages and pictures: one HTML file that needs nothing else and asks nobody for anything."""
