"""Settings of the project's own pytest runs. The plugin itself comes with the installed package."""

pytest_plugins = ["pytester"]
