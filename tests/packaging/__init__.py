"""What is installed: sdist, wheel, container file."""
