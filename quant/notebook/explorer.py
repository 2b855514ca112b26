"""The explorer: a plan in the hand. Widgets only show `quant.notebook.state.State`, and hand on what is clicked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrators import CALIBRATORS
from quant.core.arguments import with_checked_arguments
from quant.core.progress import shown_in
from quant.core.shown.table import text
from quant.engine.mixing.study import Study, study
from quant.engine.run import Run
from quant.errors import QuantError
from quant.notebook import pages, pictures
from quant.notebook.state import Measurement, State

if TYPE_CHECKING:
    import ipywidgets as widgets

_WIDE = "1 1 440px"
_PLAN_FILE = "plan.yaml"
_ALL = "all formats"


class Explorer:
    """Which layer is sensitive, what its tensors hold, and what a plan would do: shown, toggled, measured, saved.

    Args:
        of: A run or its folder (relative sources of its recipe start in the current folder), or a recipe.
        target: Title of the target; the first when not given.
        overrides: `KEY=VALUE` for recipe values.
        trust_code: Whether code that the recipe names may run.

    Raises:
        QuantError: The recipe, the model or the data cannot be used, no format is left to mix, or widgets are not installed.
    """

    def __init__(self, of: Run | Path | str | Study, *, target: str | None = None, overrides: Sequence[str] = (), trust_code: bool = False) -> None:
        try:
            import anywidget  # noqa: F401, PLC0415 - what plotly's live figures stand on
            import ipywidgets  # noqa: PLC0415 - heavy
        except ImportError as error:
            raise QuantError(f"an explorer is made of widgets, and there is no {error.name} here", hint="pip install 'quant-toolkit[notebook]'") from error
        self._w = ipywidgets
        self.state = State(of if isinstance(of, Study) else study(of, target=target, overrides=overrides, trust_code=trust_code))
        self._quiet = False
        self._make()
        self._refresh()
        self._look()

    @property
    def plan(self) -> Mapping[str, str]:
        """Layer -> format, as it is now."""
        return self.state.choices

    def measure(self) -> Measurement:
        """Measure the plan, as the button does."""
        found = self.state.measure()
        self._refresh()
        return found

    @with_checked_arguments
    def save(self, path: Path | str = _PLAN_FILE) -> Path:
        """Write the plan as YAML, as the button does; `quant.apply` takes it."""
        return self.state.save(path)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return self.widget._repr_mimebundle_(**kwargs)

    def _make(self) -> None:
        """All widgets, before anything is in them."""
        w, state = self._w, self.state
        self._prediction, self._measured, self._said = w.HTML(), w.HTML(), w.HTML()
        self._budget = self._slider()
        self._cost = self._dropdown("cost", state.costs, state.cost)
        self._measure = self._button("Measure this plan", "run it on the search samples, in its engine", self._on_measure)
        self._presets = [self._button(f"all {f}", f"every layer that can be, in {f}", self._preset(f)) for f in state.formats]
        self._order = self._dropdown("sort by", pictures.ORDERS, pictures.ORDERS[0])
        self._format = self._dropdown("format", (_ALL, *(f for f in state.formats if f != "fp32")), _ALL)
        self._find = w.Text(placeholder="find a layer", continuous_update=False, layout=w.Layout(width="auto", flex="1 1 120px"))
        self._layer = w.Dropdown(
            options=[(name, n) for n, name in enumerate(state.layers)],
            value=0,
            description="layer",
            layout=w.Layout(width="auto", flex="1 1 320px", min_width="0"),
            style={"description_width": "auto"},
        )
        self._choice = w.ToggleButtons(options=[("fp32", "fp32")], value="fp32", style={"button_width": "auto"})
        self._page, self._weights_page, self._inputs, self._progress = w.HTML(), w.HTML(), w.VBox(), w.HTML()
        self._bars, self._front = self._figure(pictures.sensitivity(state, self._rows(), self._formats())), self._figure(pictures.front_chart(state))
        # Figures stay where they are, and are only drawn anew: one that is put into a page later does not find its width.
        self._weights = self._figure(pictures.histogram_figure("Weights", None))
        self._reads: list[tuple[Any, Any]] = []
        self._path = w.Text(value=_PLAN_FILE, description="file", style={"description_width": "auto"}, layout=w.Layout(width="auto", flex="1 1 200px"))
        self._save = self._button("Save plan", "write it as YAML, for quant apply", self._on_save)
        self._watch()
        self.widget: widgets.VBox = self._laid_out()

    def _laid_out(self) -> widgets.VBox:
        w = self._w

        def row(*children: Any) -> Any:
            return w.Box(children, layout=w.Layout(display="flex", flex_flow="row wrap", align_items="center", width="100%", grid_gap="4px 8px"))

        def column(*children: Any) -> Any:
            return w.VBox(children, layout=w.Layout(flex=_WIDE, min_width="0", width="auto", overflow="hidden"))

        head = f"{self.state.study.name} on {self.state.study.ground.target}"
        title = w.HTML(f'<h3 style="margin:4px 0;color:inherit;overflow-wrap:anywhere">{text(head)}</h3>')

        def columns(*children: Any) -> Any:
            return w.Box(children, layout=w.Layout(display="flex", flex_flow="row wrap", align_items="flex-start", width="100%"))

        controls = row(self._budget, self._cost, *self._presets, self._measure)
        plan = columns(column(row(self._order, self._format, self._find), self._bars), column(self._front))
        glass = columns(column(self._page, self._weights, self._weights_page), column(self._inputs))
        saving = row(self._path, self._save)
        parts = [title, self._prediction, controls, row(self._layer, self._choice), saving, self._progress, self._said, plan, self._measured, glass]
        whole = w.VBox(parts, layout=w.Layout(width="100%", overflow="hidden"))
        whole.add_class("quant-explorer")
        return whole

    def _button(self, label: str, tooltip: str, on_click: Callable[[Any], None]) -> Any:
        made = self._w.Button(description=label, tooltip=tooltip, layout=self._w.Layout(width="auto"))
        made.on_click(on_click)
        return made

    def _dropdown(self, label: str, options: Sequence[str], value: str) -> Any:
        style = {"description_width": "auto"}
        return self._w.Dropdown(options=list(options), value=value, description=label, style=style, layout=self._w.Layout(width="auto"))

    def _slider(self) -> Any:
        """The budget: the errors of the front, from the least on."""
        options, value = self._budgets()
        layout = self._w.Layout(width="auto", flex="2 1 320px")
        style = {"description_width": "auto"}
        return self._w.SelectionSlider(options=options, value=value, description="error budget", style=style, layout=layout, continuous_update=True)

    def _budgets(self) -> tuple[list[tuple[str, float]], float]:
        """(errors of the front by rising error, the one that the plan that is looked at needs)."""
        errors = [s.error.value for s in reversed(self.state.front)]
        now = self.state.prediction().error
        return [(f"{error:.3g}", error) for error in errors], next((e for e in errors if e >= now), errors[-1])

    def _figure(self, chart: Any) -> Any:
        import plotly.graph_objects as go  # noqa: PLC0415 - heavy

        made = go.FigureWidget(chart if isinstance(chart, go.Figure) else chart.figure())
        made.layout.autosize = True
        made._config = {**made._config, "responsive": True, "displaylogo": False, "displayModeBar": False}  # noqa: SLF001 - plotly offers no other way
        return made

    def _watch(self) -> None:
        for trace in self._bars.data:
            trace.on_click(self._on_bar)
        self._budget.observe(self._on_budget, "value")
        self._cost.observe(self._on_cost, "value")
        for control in (self._order, self._format, self._find):
            control.observe(lambda _change: self._draw_bars(), "value")
        self._layer.observe(lambda _change: self._look(), "value")
        self._choice.observe(self._on_choice, "value")

    @contextmanager
    def _silently(self) -> Iterator[None]:
        """Widgets that are set in here are not taken as the user's."""
        before, self._quiet = self._quiet, True
        try:
            yield
        finally:
            self._quiet = before

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What goes wrong is said below, and not in a log that nobody opens; what was said before is over."""
        self._said.value = ""
        try:
            yield
        except QuantError as error:
            self._alert(str(error))
        except KeyboardInterrupt:
            self._alert("interrupted; what was finished is kept")
            raise
        except Exception as error:
            self._alert(f"a bug of the toolkit, whose traceback is in the log: {type(error).__name__}: {error}")
            raise

    def _alert(self, said: str) -> None:
        self._said.value = f'<div role="alert" style="white-space:pre-wrap;color:inherit">✗ {text(said)}</div>'

    def _on_bar(self, trace: Any, points: Any, _state: Any) -> None:
        if points.point_inds:
            rows = [layer for layer in self._rows() if trace.name in self.state.study.problem.effects[layer]]
            self._layer.value = self.state.layers.index(rows[points.point_inds[0]])

    def _on_choice(self, change: Mapping[str, Any]) -> None:
        if not self._quiet and change["new"] is not None:
            with self._told():
                self.state.toggle(self._name, change["new"])
                self._refresh()
                self._page.value = pages.layer_html(self.state, self.state.view(self._name))

    def _on_budget(self, change: Mapping[str, Any]) -> None:
        if not self._quiet and change["new"] is not None:
            with self._told():
                self.state.budget(float(change["new"]))
                self._changed()

    def _on_cost(self, change: Mapping[str, Any]) -> None:
        with self._told():
            self.state.look_at(change["new"])
            with self._silently():
                options, value = self._budgets()
                self._budget.options, self._budget.value = options, value
            self._changed()

    def _preset(self, number_format: str) -> Callable[[Any], None]:
        def take(_button: Any) -> None:
            with self._told():
                self.state.everywhere(number_format)
                self._changed()

        return take

    def _on_measure(self, _button: Any) -> None:
        self._measure.disabled, self._measure.description = True, "Measuring …"
        try:
            with self._told(), shown_in(self._show_progress):
                self.measure()
        finally:
            self._measure.disabled, self._measure.description = False, "Measure this plan"

    def _show_progress(self, html: str) -> None:
        self._progress.value = html

    def _on_save(self, _button: Any) -> None:
        with self._told():
            path = self.save(self._path.value or _PLAN_FILE)
            self._said.value = f'<div role="status" style="color:inherit">✓ saved {text(str(path))}; <code>quant.apply</code> takes it</div>'

    @property
    def _name(self) -> str:
        return self.state.layers[int(self._layer.value)]

    def _formats(self) -> list[str]:
        every = [f for f in self.state.formats if f != "fp32"]
        return every if self._format.value == _ALL else [self._format.value]

    def _rows(self) -> list[str]:
        one = "" if self._format.value == _ALL else self._format.value
        return pictures.rows_of(self.state, order=self._order.value, number_format=one, find=self._find.value)

    def _changed(self) -> None:
        """Another plan: everything that shows one is drawn again."""
        self._refresh()
        self._show_choice()
        self._page.value = pages.layer_html(self.state, self.state.view(self._name))

    def _refresh(self) -> None:
        self._prediction.value = pages.prediction_html(self.state)
        self._measured.value = pages.measured_html(self.state.measured)
        with self._silently():
            self._budget.value = self._budgets()[1]
        self._draw_bars()
        chart = pictures.front_chart(self.state)
        with self._front.batch_update():
            for trace, one in zip(self._front.data, chart.figure().data, strict=True):
                trace.update(x=one.x, y=one.y, hovertext=one.hovertext, error_y=one.error_y)
            self._front.layout.xaxis.title.text = text(chart.across)

    def _draw_bars(self) -> None:
        chosen, chart = self._formats(), pictures.sensitivity(self.state, self._rows(), [f for f in self.state.formats if f != "fp32"])
        drawn = chart.figure()
        with self._bars.batch_update():
            for trace, one, series in zip(self._bars.data, drawn.data, chart.series, strict=True):
                trace.update(x=one.x, y=one.y, hovertext=one.hovertext, error_x=one.error_x, visible=series.name in chosen)
                trace.marker.opacity = pictures.opacities(self.state, series)
            self._bars.layout.update(height=drawn.layout.height, yaxis={"tickvals": drawn.layout.yaxis.tickvals, "ticktext": drawn.layout.yaxis.ticktext})

    def _show_choice(self) -> None:
        with self._silently():
            self._choice.options = [(f, f) for f in self.state.formats_of(self._name)]
            self._choice.value = self.plan[self._name]

    def _look(self) -> None:
        """Another layer: put it under the glass."""
        self._show_choice()
        with self._told():
            view = self.state.view(self._name)
            self._page.value = pages.layer_html(self.state, view)
            self._weights_page.value = pages.weights_html(view)
            _redraw(self._weights, pictures.histogram_figure("Weights", view.weights.histogram if view.weights is not None else None))
            most = len(CALIBRATORS.kinds())
            while len(self._reads) < len(view.inputs):
                self._reads.append((self._figure(pictures.histogram_figure("", None, most=most)), self._w.HTML()))
            for (figure, page), read in zip(self._reads, view.inputs, strict=False):
                _redraw(figure, pictures.histogram_figure(f"What it reads: {read.tensor}", read.histogram, read.choices, most=most))
                page.value = pages.input_html(self.state, read)
            self._inputs.children = [widget for pair in self._reads[: len(view.inputs)] for widget in pair]


def _redraw(shown: Any, drawn: Any) -> None:
    """Put what is in one figure into another, of as many traces, that is shown already."""
    with shown.batch_update():
        for trace, one in zip(shown.data, drawn.data, strict=True):
            trace.update(one.to_plotly_json() | {"x": one.x, "y": one.y})
        shown.layout.update(drawn.layout.to_plotly_json())
        shown.layout.autosize = True
