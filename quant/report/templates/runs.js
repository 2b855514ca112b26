"use strict";
// Texts reach the page by textContent and setAttribute alone: a name is never read as markup.

const COLUMNS = [
  { key: "run", title: "run", of: (r) => r.run, text: (r) => r.run },
  { key: "started", title: "started", of: (r) => r.started, text: (r) => r.started.slice(0, 16).replace("T", " ") },
  { key: "recipe", title: "recipe", of: (r) => r.recipe, text: (r) => r.recipe },
  { key: "scheme", title: "scheme", of: (r) => r.scheme, text: (r) => r.scheme },
  { key: "target", title: "target", of: (r) => r.target, text: (r) => r.target },
  { key: "verdict", title: "verdict", of: (r) => r.verdict, text: (r) => r.verdict },
  { key: "value", title: "metric", number: true, of: (r) => r.value, text: (r) => r.value_text },
  { key: "drop", title: "drop", number: true, of: (r) => r.drop, text: (r) => r.drop_text },
  { key: "bound", title: "drop, at most", number: true, of: (r) => r.drop_upper, text: (r) => r.bound_text },
  { key: "time", title: "time", number: true, of: (r) => r.time, text: (r) => r.time_text },
  { key: "size", title: "size", number: true, of: (r) => r.size, text: (r) => r.size_text },
];
const FILTERS = ["recipe", "scheme", "target", "verdict"];
const ICONS = { pass: "✓", fail: "✗", inconclusive: "?", unreadable: "!" };
const AT_ONCE = 200;
const MOST_SERIES = 8;
const SVG = "http://www.w3.org/2000/svg";
const $ = (id) => document.getElementById(id);
const state = { rows: [], runs: 0, total: 0, order: { key: "started", down: true }, shown: AT_ONCE };

function made(name, attributes = {}, text = null) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== null) node.textContent = text;
  return node;
}

function drawn(name, attributes = {}, text = null) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== null) node.textContent = text;
  return node;
}

function rowsOf(run) {
  const page = run.pages.includes("report.html") ? `/runs/${run.key}/report.html` : run.pages.includes("report.json") ? `/runs/${run.key}/report.json` : "";
  const common = { run: run.run, page, recipe: run.recipe, started: run.started };
  const nothing = { scheme: "", target: "", metric: "", value: null, drop: null, drop_upper: null, time: null, size: null };
  const blank = { ...nothing, value_text: "", baseline_text: "", drop_text: "", bound_text: "", time_text: "", size_text: "" };
  if (run.problem) return [{ ...common, ...blank, verdict: "unreadable", notes: [run.problem] }];
  if (run.candidates.length === 0) return [{ ...common, ...blank, verdict: run.verdict, notes: [run.sentence] }];
  return run.candidates.map((candidate) => ({ ...common, ...candidate }));
}

function words(row) {
  row.words ??= [row.run, row.started, row.recipe, row.scheme, row.target, row.verdict, row.metric, ...row.notes].join("\n").toLowerCase();
  return row.words;
}

function chosen() {
  const wanted = Object.fromEntries(FILTERS.map((name) => [name, $(name).value]));
  const asked = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  return state.rows.filter((row) => FILTERS.every((name) => !wanted[name] || row[name] === wanted[name]) && asked.every((word) => words(row).includes(word)));
}

function compared(a, b) {
  if (typeof a === "number") return a - b;
  return a.localeCompare(b, "en", { numeric: true });
}

function sorted(rows) {
  const column = COLUMNS.find((one) => one.key === state.order.key);
  const empty = (value) => value === null || value === "";
  const sign = state.order.down ? -1 : 1;
  return rows
    .map((row, place) => ({ row, place, value: column.of(row) }))
    .sort((a, b) => {
      if (empty(a.value) || empty(b.value)) return empty(a.value) - empty(b.value) || a.place - b.place; // what is missing comes last either way
      return sign * compared(a.value, b.value) || a.place - b.place;
    })
    .map((one) => one.row);
}

function fillFilters() {
  for (const name of FILTERS) {
    const before = $(name).value;
    const values = [...new Set(state.rows.map((row) => row[name]).filter(Boolean))].sort(compared);
    $(name).replaceChildren(made("option", { value: "" }, "all"), ...values.map((value) => made("option", { value }, value)));
    $(name).value = values.includes(before) ? before : "";
  }
}

function fillHead() {
  const cells = COLUMNS.map((column) => {
    const now = state.order.key === column.key;
    const cell = made("th", { scope: "col", "aria-sort": now ? (state.order.down ? "descending" : "ascending") : "none", class: column.number ? "n" : "" });
    const button = made("button", { type: "button", "data-key": column.key }, column.title);
    button.append(made("span", { "aria-hidden": "true", class: "arrow" }, now ? (state.order.down ? " ↓" : " ↑") : ""));
    button.addEventListener("click", () => order(column.key, now ? !state.order.down : Boolean(column.number && column.key === "value")));
    cell.append(button);
    return cell;
  });
  $("head").replaceChildren(...cells);
  const ways = COLUMNS.flatMap((column) => [
    made("option", { value: `${column.key} up` }, `${column.title} ↑`),
    made("option", { value: `${column.key} down` }, `${column.title} ↓`),
  ]);
  $("order").replaceChildren(...ways);
  $("order").value = `${state.order.key} ${state.order.down ? "down" : "up"}`;
}

function order(key, down) {
  state.order = { key, down };
  fillHead();
  show();
  document.querySelector(`#head [data-key="${key}"]`).focus({ preventScroll: true });
}

function cellsOf(row) {
  const line = made("tr");
  for (const column of COLUMNS) {
    const text = column.text(row);
    const cell = made(column.key === "run" ? "th" : "td", { "data-name": column.title, class: `${column.number ? "n" : column.key}${text && text !== "–" ? "" : " empty"}` });
    if (column.key === "run") {
      cell.setAttribute("scope", "row");
      cell.append(row.page ? made("a", { href: row.page }, text) : document.createTextNode(text));
    } else if (column.key === "verdict") {
      const badge = made("span", { class: `badge ${text.replaceAll(" ", "-")}` });
      badge.append(made("span", { "aria-hidden": "true" }, ICONS[text] ?? "–"), ` ${text}`);
      cell.append(badge, ...row.notes.map((note) => made("small", {}, note)));
    } else {
      cell.textContent = text;
      if (column.key === "value" && row.metric) cell.append(made("small", {}, row.metric), made("small", {}, `FP32 ${row.baseline_text}`));
    }
    line.append(cell);
  }
  return line;
}

function show() {
  const rows = chosen();
  $("rows").replaceChildren(...sorted(rows).slice(0, state.shown).map(cellsOf));
  const rest = rows.length - Math.min(rows.length, state.shown);
  $("more").hidden = rest === 0;
  $("more").textContent = `Show ${Math.min(rest, AT_ONCE)} more of ${rest}`;
  const broken = new Set(state.rows.filter((row) => row.verdict === "unreadable").map((row) => row.run)).size;
  const read = state.runs < state.total ? `Reading: ${state.runs} of ${state.total} runs` : `${state.total} ${state.total === 1 ? "run" : "runs"}`;
  const left = rows.length < state.rows.length ? `${rows.length} of ${state.rows.length} rows shown` : `${rows.length} ${rows.length === 1 ? "row" : "rows"}`;
  $("state").textContent = `${read}, ${left}${broken ? `; ${broken} cannot be read` : ""}.`;
  showTrends(rows);
}

function showTrends(rows) {
  const groups = new Map();
  for (const row of rows) {
    if (!row.started || (row.value === null && row.time === null)) continue;
    const key = JSON.stringify([row.recipe, row.metric]);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(row);
  }
  const plots = [...groups.values()].sort((a, b) => compared(a[0].recipe, b[0].recipe)).map(trend).filter(Boolean);
  $("plots").replaceChildren(...plots);
  $("trends").hidden = plots.length === 0;
}

function trend(rows) {
  const runs = [...new Map(rows.map((row) => [row.run, row.started])).entries()].sort((a, b) => compared(a[1], b[1]) || compared(a[0], b[0])).map((one) => one[0]);
  if (runs.length < 2) return null; // one run is no trend
  const names = [...new Set(rows.map((row) => `${row.scheme} on ${row.target}`))].sort(compared);
  const places = new Map(runs.map((run, place) => [run, place]));
  const figure = made("figure");
  figure.append(made("h3", {}, rows[0].recipe));
  const pair = made("div", { class: "pair" });
  const told = { runs, places, names: names.slice(0, MOST_SERIES), rows };
  pair.append(plot({ ...told, title: rows[0].metric || "metric", of: (row) => row.value, text: (row) => row.value_text, line: (row) => row.baseline }));
  pair.append(plot({ ...told, title: "time over FP32", of: (row) => row.time, text: (row) => row.time_text, line: () => 1 }));
  figure.append(pair);
  const legend = made("ul", { class: "keys" });
  told.names.forEach((name, n) => {
    const entry = made("li");
    const key = drawn("svg", { viewBox: "0 0 26 12", width: 26, height: 12, "aria-hidden": "true" });
    key.append(drawn("path", { d: "M0 6H26", class: `line s${n}` }), mark(n, 13, 6));
    entry.append(key, ` ${name}`);
    legend.append(entry);
  });
  if (rows.some((row) => row.baseline !== null)) legend.append(made("li", { class: "muted" }, "- - FP32"));
  if (names.length > MOST_SERIES) legend.append(made("li", { class: "muted" }, `${names.length - MOST_SERIES} more are not drawn; filter to see them`));
  figure.append(legend);
  return figure;
}

function mark(n, x, y) {
  const shapes = ["M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0", "M-4-4H4V4H-4z", "M0-5L5 4H-5z", "M0-5L5 0L0 5L-5 0z"];
  return drawn("path", { d: shapes[n % shapes.length], transform: `translate(${x} ${y})`, class: `mark s${n}` });
}

function plot({ runs, places, names, rows, title, of, text, line }) {
  const width = 480, height = 200, left = 62, right = 14, top = 26, bottom = 30;
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, class: "plot", role: "group", "aria-label": title });
  svg.append(drawn("text", { x: 0, y: 13, class: "title" }, title.length > 56 ? `${title.slice(0, 55)}…` : title));
  const told = rows.filter((row) => of(row) !== null && names.includes(`${row.scheme} on ${row.target}`));
  if (told.length === 0) {
    svg.append(drawn("text", { x: width / 2, y: height / 2, class: "tick", "text-anchor": "middle" }, "nothing measured"));
    return svg;
  }
  const values = told.flatMap((row) => [of(row), line(row)]).filter((value) => value !== null);
  let low = Math.min(...values), high = Math.max(...values);
  const room = (high - low || Math.abs(high) || 1) * 0.08;
  [low, high] = [low - room, high + room];
  const x = (run) => left + 8 + ((width - left - right - 16) * places.get(run)) / Math.max(runs.length - 1, 1);
  const y = (value) => top + ((height - top - bottom) * (high - value)) / (high - low);
  for (const value of ticks(low, high)) {
    svg.append(drawn("path", { d: `M${left} ${y(value)}H${width - right}`, class: "grid" }));
    svg.append(drawn("text", { x: left - 6, y: y(value) + 4, class: "tick", "text-anchor": "end" }, String(Number(value.toPrecision(6)))));
  }
  const dates = runs.map((run) => rows.find((row) => row.run === run).started.slice(0, 10));
  svg.append(drawn("text", { x: left, y: height - 8, class: "tick" }, dates[0]));
  svg.append(drawn("text", { x: width - right, y: height - 8, class: "tick", "text-anchor": "end" }, dates.at(-1)));
  const inTurn = [...told].sort((a, b) => places.get(a.run) - places.get(b.run));
  const path = (points) => points.map(([across, down], n) => `${n ? "L" : "M"}${across.toFixed(1)} ${down.toFixed(1)}`).join("");
  const base = [...new Map(inTurn.filter((row) => line(row) !== null).map((row) => [row.run, [x(row.run), y(line(row))]])).values()];
  svg.append(drawn("path", { d: path(base), class: "base" }));
  names.forEach((name, n) => {
    const own = inTurn.filter((row) => `${row.scheme} on ${row.target}` === name);
    svg.append(drawn("path", { d: path(own.map((row) => [x(row.run), y(of(row))])), class: `line s${n}` }));
    for (const row of own) {
      const point = row.page ? drawn("a", { href: row.page }) : drawn("g");
      const said = `${row.run}: ${name}, ${text(row)}, ${row.verdict}`;
      if (row.page) point.setAttribute("aria-label", said);
      point.append(drawn("title", {}, said), mark(n, x(row.run), y(of(row))));
      svg.append(point);
    }
  });
  return svg;
}

function ticks(low, high) {
  const rough = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  const found = [];
  for (let n = Math.ceil(low / step); n * step <= high; n++) found.push(n * step);
  return found;
}

async function read() {
  do {
    const answer = await fetch(`/index.json?start=${state.runs}`);
    if (!answer.ok) throw new Error(`${answer.status}`);
    const found = await answer.json();
    $("folder").textContent = found.folder;
    document.title = `Quantization runs: ${found.folder}`;
    state.total = found.total;
    if (found.runs.length === 0) state.total = state.runs; // some went away while we were reading
    state.runs += found.runs.length;
    state.rows.push(...found.runs.flatMap(rowsOf));
    fillFilters();
    show();
  } while (state.runs < state.total);
  const empty = state.total === 0;
  for (const id of ["filters", "table"]) $(id).hidden = empty;
  if (empty) $("state").textContent = "No runs here yet: `quant run RECIPE --output FOLDER` writes one. Load this page again then.";
}

addEventListener("DOMContentLoaded", () => {
  fillHead();
  const anew = () => { state.shown = AT_ONCE; show(); };
  $("filters").addEventListener("input", anew);
  $("filters").addEventListener("reset", () => setTimeout(anew));
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  $("order").addEventListener("change", () => { const [key, way] = $("order").value.split(" "); state.order = { key, down: way === "down" }; fillHead(); show(); });
  $("more").addEventListener("click", () => { state.shown += AT_ONCE; show(); });
  read().catch((error) => { $("state").textContent = `The index cannot be read (${error.message}): is \`quant serve\` still running?`; });
});
