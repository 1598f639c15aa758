"""Items that a test holds in a worker until it lets them go on."""

from conftest import wait_until


class Gates:
    """Items for ``tasks.hold``, each with a name."""

    def __init__(self, folder):
        self._folder = folder

    def item(self, name):
        return str(self._folder), name

    def has_begun(self, name):
        return (self._folder / f"{name}.begun").exists()

    def await_begun(self, name):
        assert wait_until(lambda: self.has_begun(name))

    def open(self, *names):
        for name in names:
            (self._folder / f"{name}.go").touch()
