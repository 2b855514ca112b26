// The picture of the plan: coloured by format or error, moved, zoomed, searched; with a pointer or with keys.
{
  const content = document.getElementById("graph-content");
  if (content) {
    const told = JSON.parse(content.textContent);
    const svg = document.getElementById("graph-drawing");
    const found = document.getElementById("graph-found");
    const picked = document.getElementById("graph-picked");
    const scale = document.getElementById("graph-scale");
    const search = document.getElementById("graph-search");
    const choice = document.getElementById("graph-plan");
    const errors = document.querySelector("input[name=colour][value=error]");
    const formats = document.querySelector("input[name=colour][value=format]");
    const parts = told.names.map((_, at) => document.getElementById("part-" + at));
    const layerOf = new Map(told.layers.map((part, at) => [part, at]));
    const [, , fullWidth, fullHeight] = svg.getAttribute("viewBox").split(" ").map(Number);
    let box = { x: 0, y: 0, w: fullWidth, h: fullHeight };
    let view = told.views[told.first];
    let current = 0;
    let chosen = -1;

    const make = (name, text, className) => {
      const made = document.createElement(name);
      if (text !== undefined) made.textContent = text;
      if (className) made.className = className;
      return made;
    };
    const words = (at) => {
      const layer = layerOf.get(at);
      const shown = [told.names[at], told.ops[at], view.formats[layer]];
      if (view.scale.length) shown.push("effect " + view.effects[layer]);
      return shown.join(", ");
    };

    // Colours
    const legend = () => {
      const rows = errors.checked
        ? [...view.scale.map(([level, text]) => ["e-" + level, text]), ...(view.levels.includes("u") ? [["e-u", "not known"]] : [])]
        : [...new Map(view.colours.map((colour, at) => ["f-" + colour, view.formats[at]])).entries()];
      scale.replaceChildren(...rows.map(([colour, text]) => {
        const row = make("li", undefined, colour);
        const swatch = make("span", undefined, "swatch");
        swatch.setAttribute("aria-hidden", "true");
        row.append(swatch, text);
        return row;
      }));
    };
    const paint = () => {
      errors.disabled = !view.scale.length;
      errors.parentElement.title = errors.disabled ? "no effects of layers are known for this plan" : "";
      if (errors.disabled && errors.checked) formats.checked = true;
      const byError = errors.checked;
      told.layers.forEach((at, layer) => {
        const part = parts[at];
        part.classList.remove(...[...part.classList].filter((name) => /^[ef]-/.test(name)));
        part.classList.add(byError ? "e-" + view.levels[layer] : "f-" + view.colours[layer]);
        part.querySelector(".what").textContent = byError ? view.effects[layer].split(" ")[0] : view.formats[layer];
        part.querySelector("title").textContent = words(at);
        part.setAttribute("aria-label", words(at));
      });
      legend();
      if (chosen >= 0) tell(chosen);
    };

    // Where one looks
    const show = () => {
      svg.setAttribute("viewBox", [box.x, box.y, box.w, box.h].map((v) => v.toFixed(2)).join(" "));
      const size = svg.getBoundingClientRect();
      svg.classList.toggle("far", Math.min(size.width / box.w, size.height / box.h) < 0.42);
    };
    const fit = () => { box = { x: 0, y: 0, w: fullWidth, h: fullHeight }; show(); };
    const zoom = (factor, cx = box.x + box.w / 2, cy = box.y + box.h / 2) => {
      const size = svg.getBoundingClientRect();
      const w = Math.min(Math.max(box.w / factor, 120), fullWidth * 1.5);
      const h = w * size.height / size.width;
      box = { x: cx - (cx - box.x) * w / box.w, y: cy - (cy - box.y) * h / box.h, w, h };
      show();
    };
    const at = (event) => {
      const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      return [point.x, point.y];
    };
    const seen = (part) => {
      const [, x, y] = /translate\(([-\d.]+) ([-\d.]+)\)/.exec(parts[part].getAttribute("transform")).map(Number);
      if (svg.classList.contains("far")) zoom(0.6 / Math.min(svg.clientWidth / box.w, svg.clientHeight / box.h), x, y);
      if (x - 60 < box.x || x + 60 > box.x + box.w) box.x = x - box.w / 2;
      if (y - 20 < box.y || y + 20 > box.y + box.h) box.y = y - box.h / 2;
      show();
    };

    // One layer
    const tell = (part) => {
      chosen = part;
      const layer = layerOf.get(part);
      parts.forEach((other) => other.classList.remove("chosen"));
      parts[part].classList.add("chosen");
      const link = make("a", "in the table");
      link.href = "#layer-" + view.number + "-" + layer;
      const effect = view.scale.length ? " Effect: " + view.effects[layer] + "." : "";
      const runs = view.runs[layer] ? " The engine runs it in " + view.runs[layer] + "." : "";
      const reason = view.reasons[view.why[layer]];
      picked.replaceChildren(
        make("strong", told.names[part]),
        told.ops[part] + " in " + view.formats[layer] + (reason ? ": " + reason.replace(/\.$/, "") : "") + "." + effect + runs + " ",
        link,
      );
      picked.hidden = false;
    };
    const focus = (layer) => {
      parts[told.layers[current]].tabIndex = -1;
      current = Math.min(Math.max(layer, 0), told.layers.length - 1);
      const part = parts[told.layers[current]];
      part.tabIndex = 0;
      seen(told.layers[current]);
      part.focus({ preventScroll: true });
    };
    const nearest = (dx, dy) => {
      const place = (layer) => /translate\(([-\d.]+) ([-\d.]+)\)/.exec(parts[told.layers[layer]].getAttribute("transform")).slice(1).map(Number);
      const [x, y] = place(current);
      let best = -1;
      let least = Infinity;
      told.layers.forEach((_, layer) => {
        const [ox, oy] = place(layer);
        const along = (ox - x) * dx + (oy - y) * dy;
        const aside = Math.abs((ox - x) * dy) + Math.abs((oy - y) * dx);
        if (along > 1 && along + 3 * aside < least) { least = along + 3 * aside; best = layer; }
      });
      return best < 0 ? current : best;
    };

    svg.addEventListener("keydown", (event) => {
      const keys = {
        ArrowRight: () => focus(current + 1), ArrowLeft: () => focus(current - 1),
        ArrowDown: () => focus(nearest(0, 1)), ArrowUp: () => focus(nearest(0, -1)),
        Home: () => focus(0), End: () => focus(told.layers.length - 1),
        Enter: () => tell(told.layers[current]), " ": () => tell(told.layers[current]),
        "+": () => zoom(1.4), "=": () => zoom(1.4), "-": () => zoom(1 / 1.4), 0: fit,
      };
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      keys[event.key]();
    });

    // Pointers: one moves, two pinch.
    const held = new Map();
    let travelled = 0;
    svg.addEventListener("pointerdown", (event) => { held.set(event.pointerId, event); travelled = 0; });
    svg.addEventListener("pointermove", (event) => {
      const before = held.get(event.pointerId);
      if (!before) return;
      const others = [...held.values()].filter((other) => other.pointerId !== event.pointerId);
      const [x0, y0] = at(before);
      const [x1, y1] = at(event);
      travelled += Math.hypot(event.clientX - before.clientX, event.clientY - before.clientY);
      if (travelled > 4 && !svg.hasPointerCapture(event.pointerId)) svg.setPointerCapture(event.pointerId);
      if (others.length === 1) {
        const [ox, oy] = at(others[0]);
        zoom(Math.hypot(x1 - ox, y1 - oy) / Math.max(Math.hypot(x0 - ox, y0 - oy), 1e-6), ox, oy);
      } else if (!others.length && travelled > 4) {
        box.x -= x1 - x0;
        box.y -= y1 - y0;
        svg.classList.add("moved");
        show();
      }
      held.set(event.pointerId, event);
    });
    for (const name of ["pointerup", "pointercancel"]) {
      svg.addEventListener(name, (event) => { held.delete(event.pointerId); svg.classList.remove("moved"); });
    }
    svg.addEventListener("click", (event) => {
      const part = event.target.closest(".part.layer");
      if (!part || travelled > 4) return;
      const number = Number(part.id.slice("part-".length));
      parts[told.layers[current]].tabIndex = -1;
      current = layerOf.get(number);
      part.tabIndex = 0;
      tell(number);
    });
    svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // the page scrolls on
      event.preventDefault();
      zoom(Math.exp(-event.deltaY / 300), ...at(event));
    }, { passive: false });
    for (const button of document.querySelectorAll("[data-zoom]")) {
      button.addEventListener("click", () => ({ in: () => zoom(1.5), out: () => zoom(1 / 1.5), fit })[button.dataset.zoom]());
    }

    // Search
    let hits = [];
    search.addEventListener("input", () => {
      const sought = search.value.trim().toLowerCase();
      hits = sought ? told.names.map((name, part) => part).filter((part) => (told.names[part] + " " + told.ops[part]).toLowerCase().includes(sought)) : [];
      svg.classList.toggle("search", sought !== "");
      parts.forEach((part) => part.classList.remove("hit"));
      hits.forEach((part) => parts[part].classList.add("hit"));
      found.textContent = sought ? hits.length + " of " + parts.length + " found" + (hits.length ? "; Enter goes to the next" : "") : "";
    });
    let turn = -1;
    search.addEventListener("keydown", (event) => {
      const layers = hits.filter((part) => layerOf.has(part));
      if (event.key !== "Enter" || !layers.length) return;
      event.preventDefault();
      turn = (turn + 1) % layers.length;
      parts[told.layers[current]].tabIndex = -1;
      current = layerOf.get(layers[turn]);
      parts[layers[turn]].tabIndex = 0;
      seen(layers[turn]);
      tell(layers[turn]);
    });

    for (const input of [errors, formats]) input.addEventListener("change", paint);
    choice.addEventListener("change", () => { view = told.views[Number(choice.value)]; paint(); });
    svg.setAttribute("role", "group");
    svg.setAttribute("aria-describedby", "graph-help");
    told.layers.forEach((part) => { parts[part].setAttribute("role", "button"); parts[part].tabIndex = -1; });
    parts.forEach((part, number) => { if (!layerOf.has(number)) part.setAttribute("aria-hidden", "true"); });
    if (told.layers.length) parts[told.layers[0]].tabIndex = 0;
    for (const hidden of document.querySelectorAll(".tools, .keys")) hidden.hidden = false;
    paint();
    show();
    addEventListener("resize", show);
  }
}
