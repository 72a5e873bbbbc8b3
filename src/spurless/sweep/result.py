"""What a sweep found, as an object: the content of sweep.json, which prints short, shows itself and draws itself."""

from __future__ import annotations

from typing import Any

from spurless.report.tables import html
from spurless.sweep import terminal
from spurless.sweep.choice import show
from spurless.sweep.plot import NOTHING, Series, compose, figure_size


class Sweep(dict[str, Any]):
    """A dict of what sweep.json holds, and its points."""

    def __init__(self, content: dict[str, Any], series: Series):
        super().__init__(content)
        self._series = series

    @property
    def parts(self) -> list[dict[str, Any]]:
        """One for each setting that was swept."""
        return list(self.get("series") or [self | {"name": self["over"]}])

    def __repr__(self) -> str:
        told = []
        for axis_part in self.parts:
            chosen = "nothing chosen" if axis_part["choice"] is None else f"choose {show(axis_part['choice']['value'])}"
            told.append(f"{axis_part['name']}: {len(axis_part['points'])} values, {chosen}")
        return f"Sweep({self['title']}; {'; '.join(told)}; {len(self['seeds'])} seeds; {self.get('folder', '')})"

    def _repr_html_(self) -> str:
        tables = [html(*terminal.texts(axis_part), axis_part["name"]) for axis_part in self.parts]
        return html([], [], self["title"]) + "".join(tables) + html([], [], below=self["text"].split("\n\n"))

    def plot(self, ax: Any = None) -> Any:
        """The study's plot, in the given axes or in a new figure. Returns the axes, or a list of them for several."""
        chosen = [axis_part["choice"]["value"] if axis_part["choice"] else NOTHING for axis_part in self.parts]
        if ax is not None and len(self._series) == 1:
            return compose(ax.figure, self._series, self["title"], chosen, [ax])[0]
        from matplotlib import pyplot

        figure = pyplot.figure(figsize=figure_size(len(self._series)), layout="constrained")
        drawn = compose(figure, self._series, self["title"], chosen)
        return drawn[0] if len(drawn) == 1 else drawn
