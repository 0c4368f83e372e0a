/* What the page does when it can: draw the charts, sort the tables, filter by variant and scenario, change the theme.
   Without it the page is whole, as tables and pictures. */
(() => {
  "use strict";
  const root = document.documentElement;
  const figures = JSON.parse(document.getElementById("data").textContent);
  const canvases = [...document.querySelectorAll("[data-chart] > .canvas")];
  const nameOf = (canvas) => canvas.parentElement.dataset.chart;
  const said = document.getElementById("said");
  const say = (text) => { if (said) said.textContent = text; };

  // Theme

  const darkOutside = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : darkOutside.matches);
  const colourOf = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  function mixed(colour, other, share) {
    if (!/^#[0-9a-f]{6}$/i.test(colour)) return colour;
    const part = (text, place) => parseInt(text.slice(place, place + 2), 16);
    return `rgb(${[1, 3, 5].map((at) => Math.round(part(colour, at) * (1 - share) + part(other, at) * share)).join(",")})`;
  }
  // Lines need a contrast of three to one to the ground, texts of four and a half.
  const ofLine = (colour) => (isDark() ? mixed(colour, "#ffffff", 0.25) : colour);
  const ofText = (colour) => (isDark() ? mixed(colour, "#ffffff", 0.45) : mixed(colour, "#000000", 0.26));

  function themed(trace) {
    if (trace.line?.color) trace.line.color = ofLine(trace.line.color);
    if (trace.marker?.color) trace.marker.color = ofLine(trace.marker.color);
    if (trace.marker?.line?.color) trace.marker.line.color = ofLine(trace.marker.line.color);
    if (trace.textfont?.color) trace.textfont.color = ofText(trace.textfont.color);
    for (const bars of [trace.error_x, trace.error_y]) if (bars) bars.color = ofLine(bars.color);
    return trace;
  }

  function themedLayout(layout) {
    const [ink, soft, line, paper] = ["--ink", "--soft", "--line", "--paper"].map(colourOf);
    layout.paper_bgcolor = layout.plot_bgcolor = "rgba(0,0,0,0)";
    layout.font = { family: getComputedStyle(document.body).fontFamily, size: 12, color: soft };
    layout.hoverlabel = { ...layout.hoverlabel, bgcolor: paper, bordercolor: line, font: { ...layout.font, color: ink } };
    for (const axis of [layout.xaxis, layout.yaxis]) Object.assign(axis, { gridcolor: line, linecolor: line, tickcolor: line });
    for (const note of layout.annotations ?? []) note.font.color = ofText(note.font.color);
    return layout;
  }

  // Charts

  const shownVariants = new Set();
  const shownScenarios = new Set();
  const isShown = (variant) => !variant || shownVariants.size === 0 || shownVariants.has(variant);

  // Plotly is packed in the page. The page's policy lets the browser run it for its digest.
  async function loadPlotly() {
    const packed = atob(document.getElementById("plotly").textContent);
    const bytes = new Uint8Array(packed.length);
    for (let at = 0; at < packed.length; at += 1) bytes[at] = packed.charCodeAt(at);
    const script = document.createElement("script");
    script.textContent = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
    document.head.append(script);
  }

  // A browser that can't unpack it, or a page without it, shows what a browser without scripts does.
  function showPictures() {
    for (const hidden of document.querySelectorAll("main noscript")) hidden.outerHTML = hidden.textContent;
    for (const canvas of canvases) canvas.parentElement.hidden = true;
  }

  // A click on a run of a history opens its commit; any other one chooses the variant.
  function click({ points: [point] }) {
    if (point.customdata) window.open(point.customdata, "_blank", "noopener,noreferrer");
    else choose(point.data.meta);
  }

  function draw(canvas, width) {
    if (!window.Plotly) return;
    const { data, layout } = structuredClone(figures[nameOf(canvas)]);
    for (const trace of data) {
      trace.visible = isShown(trace.meta);
      themed(trace);
    }
    for (const note of layout.annotations ?? []) note.visible = isShown(note.name);
    themedLayout(layout);
    layout.width = width;
    if (window.matchMedia("(pointer: coarse)").matches) layout.dragmode = false; // so that a finger scrolls the page
    if (width < 480) Object.assign(layout.margin, { l: 8, r: Math.min(layout.margin.r, 122) });
    window.Plotly.react(canvas, data, layout, { displayModeBar: false, displaylogo: false });
    placeLabels(canvas);
    if (!canvas.parentElement.dataset.drawn) canvas.on("plotly_click", click);
    canvas.parentElement.dataset.drawn = "true";
  }

  // One chart a frame, so that the page can be read and scrolled from the start.
  const waiting = new Set();

  function drawLater(canvas) {
    waiting.add(canvas);
    if (waiting.size === 1) requestAnimationFrame(drawNext);
  }

  function drawNext() {
    const [canvas] = waiting;
    waiting.delete(canvas);
    if (canvas.clientWidth) draw(canvas, canvas.clientWidth);
    if (waiting.size) requestAnimationFrame(drawNext);
  }

  const drawAll = (width) => canvases.forEach((canvas) => draw(canvas, width ?? canvas.clientWidth));

  // A marker's label goes where it covers the least; one that would cover another is left to the pointer.

  const SIDES = ["top center", "bottom center", "middle right", "middle left", "top right", "top left", "bottom right", "bottom left"];
  const ROOM_TO_COVER = 40; // square pixels of other markers
  const SLACK = 10; // pixels by which plotly may set a label further out than is reckoned here
  const STRUCK = 10; // what a bar through a label costs, whatever it covers
  const pen = document.createElement("canvas").getContext("2d");

  // Plotly's texts are escaped.
  const plain = (text) => new DOMParser().parseFromString(text, "text/html").body.textContent;

  function labelBox(point, side) {
    const [vertical, horizontal] = side.split(" ");
    const gap = point.radius + 3;
    const diagonal = vertical !== "middle" && horizontal !== "center" ? 0.75 : 1;
    const x = { left: point.x - gap * diagonal - point.width, center: point.x - point.width / 2, right: point.x + gap * diagonal }[horizontal];
    const y = { top: point.y - gap * diagonal - point.height, middle: point.y - point.height / 2, bottom: point.y + gap * diagonal }[vertical];
    return { left: x, top: y, right: x + point.width, bottom: y + point.height };
  }

  const overlap = (a, b) =>
    Math.max(0, Math.min(a.right, b.right) - Math.max(a.left, b.left)) * Math.max(0, Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top));

  // The boxes of a point's error bars, along each axis.
  function barsOf(trace, full, x, y) {
    const ends = (bars, axis, value) => [value - bars.arrayminus[0], value + bars.array[0]].map((end) => axis.d2p(end));
    const across = trace.error_x ? ends(trace.error_x, full.xaxis, trace.x[0]) : [x, x];
    const along = trace.error_y ? ends(trace.error_y, full.yaxis, trace.y[0]) : [y, y];
    return [
      { left: Math.min(...across), top: y - 1, right: Math.max(...across), bottom: y + 1 },
      { left: x - 1, top: Math.min(...along), right: x + 1, bottom: Math.max(...along) },
    ];
  }

  function placeLabels(canvas) {
    const full = canvas._fullLayout;
    const points = canvas.data.flatMap((trace, index) => {
      if (trace.mode !== "markers+text" || trace.visible === false) return [];
      pen.font = `${trace.textfont.size}px ${full.font.family}`;
      const radius = trace.marker.size / 2;
      const [x, y] = [full.xaxis.d2p(trace.x[0]), full.yaxis.d2p(trace.y[0])];
      return [{ index, x, y, radius, width: pen.measureText(plain(trace.text[0])).width, height: trace.textfont.size + 3 }];
    });
    if (!points.length) return;
    const markers = points.map(({ x, y, radius }) => ({ left: x - radius, top: y - radius, right: x + radius, bottom: y + radius }));
    const bars = points.flatMap(({ index, x, y }) => barsOf(canvas.data[index], full, x, y));
    const frame = { left: 0, top: -full.margin.t, right: full.xaxis._length + full.margin.r - SLACK, bottom: full.yaxis._length };
    const placed = [];
    const outside = (box) => box.left < frame.left || box.top < frame.top || box.right > frame.right || box.bottom > frame.bottom;
    const cost = (box, own) =>
      (outside(box) ? 1e6 : 0) +
      placed.reduce((sum, other) => sum + 50 * overlap(box, other), 0) +
      markers.reduce((sum, other, at) => sum + (at === own ? 0 : overlap(box, other)), 0) +
      bars.reduce((sum, other) => sum + (overlap(box, other) > 0 ? STRUCK : 0), 0);
    const chosen = points.map((point, at) => {
      const options = SIDES.map((side, rank) => ({ side, box: labelBox(point, side), rank }));
      const costs = options.map((option) => cost(option.box, at) + option.rank * 0.01);
      const best = costs.indexOf(Math.min(...costs));
      const fits = costs[best] < ROOM_TO_COVER;
      if (fits) placed.push(options[best].box);
      return { side: options[best].side, fits };
    });
    const texts = points.map((point, at) => (chosen[at].fits ? canvas.data[point.index].text : [""]));
    window.Plotly.restyle(canvas, { textposition: chosen.map((one) => one.side), text: texts }, points.map((point) => point.index));
  }

  // Filters

  function filter() {
    for (const part of document.querySelectorAll("tr[data-variant], .heat [data-variant]")) part.hidden = !isShown(part.dataset.variant);
    for (const text of document.querySelectorAll(".text:not([data-reference])")) {
      text.hidden = ![...text.querySelectorAll("[data-of]")].some((tag) => isShown(tag.dataset.of));
    }
    for (const part of document.querySelectorAll("#tables .fold, figure[data-scenario], .heat tr[data-scenario]")) {
      part.hidden = shownScenarios.size > 0 && !shownScenarios.has(part.dataset.scenario);
    }
    canvases.forEach((canvas) => { if (canvas.clientWidth) draw(canvas, canvas.clientWidth); });
  }

  // A click on a marker, line or bar is one on its variant's chip.
  function choose(variant) {
    [...document.querySelectorAll("#variants .chip")].find((chip) => chip.dataset.variant === variant)?.click();
  }

  function chips(group, key, shown) {
    const buttons = [...group.querySelectorAll(".chip")];
    group.addEventListener("click", (event) => {
      const button = event.target.closest(".chip");
      if (!button) return;
      const value = button.dataset[key];
      if (value === undefined) shown.clear();
      else if (!shown.delete(value)) shown.add(value);
      for (const one of buttons) {
        const own = one.dataset[key];
        one.setAttribute("aria-pressed", String(own === undefined ? shown.size === 0 : shown.has(own)));
      }
      filter();
      say(shown.size ? `Shown: ${[...shown].join(", ")}` : "Everything is shown");
    });
  }

  // Tables

  function sortBy(head, table) {
    const heads = [...head.parentElement.children];
    const column = heads.indexOf(head);
    const isNumber = head.classList.contains("number");
    const first = isNumber && head.dataset.better === "higher is better" ? "descending" : "ascending";
    const turned = { ascending: "descending", descending: "ascending" };
    const order = turned[head.getAttribute("aria-sort")] ?? first;
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const keyOf = (row) => {
      const cell = row.children[column];
      return isNumber ? (cell.dataset.sort === undefined ? null : Number(cell.dataset.sort)) : cell.textContent.trim();
    };
    const compare = (a, b) => {
      if (a === null || b === null) return (a === null) - (b === null);
      return sign * (isNumber ? a - b : a.localeCompare(b, undefined, { numeric: true }));
    };
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => [keyOf(row), row]);
    rows.sort(([a], [b]) => compare(a, b));
    body.append(...rows.map(([, row]) => row));
    table.classList.add("sorted");
    say(`Sorted by ${head.querySelector(".sort").textContent}, ${order}`);
  }

  function sortable(table) {
    for (const head of table.tHead.rows[0].cells) {
      const label = head.querySelector(".label") ?? head;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.textContent = label.textContent;
      if (label === head) head.replaceChildren(button);
      else label.replaceWith(button);
      button.addEventListener("click", () => sortBy(head, table));
    }
  }

  // A table that is wider than its place says so, and only it is a stop of the keyboard.

  function tellWidth(place) {
    const isWide = place.scrollWidth > place.clientWidth + 1;
    place.classList.toggle("wide", isWide);
    if (isWide) place.tabIndex = 0;
    else place.removeAttribute("tabindex");
  }

  // The heatmap's intervals: beside the pointer, or the finger.

  function tips(table) {
    const tip = document.createElement("div");
    tip.className = "tip";
    tip.setAttribute("role", "tooltip");
    tip.hidden = true;
    document.body.append(tip);
    for (const cell of table.querySelectorAll("td[title]")) {
      cell.dataset.tip = cell.title;
      cell.removeAttribute("title");
    }
    let cell = null;
    const show = () => {
      tip.hidden = !cell;
      if (!cell) return;
      tip.textContent = cell.dataset.tip;
      const place = cell.getBoundingClientRect();
      const above = place.top - tip.offsetHeight - 6;
      tip.style.left = `${Math.max(8, Math.min(place.left, window.innerWidth - tip.offsetWidth - 8))}px`;
      tip.style.top = `${above > 0 ? above : place.bottom + 6}px`;
    };
    const point = (at) => { cell = at; show(); };
    table.addEventListener("pointerover", (event) => point(event.target.closest("[data-tip]")));
    table.addEventListener("pointerleave", () => point(null));
    document.addEventListener("scroll", show, { capture: true, passive: true });
  }

  // Glossary: the entry opens beside the head that asked for it.

  function besideItsHead(event) {
    const asked = event.target.closest(".what");
    if (!asked) return;
    const entry = document.getElementById(asked.getAttribute("popovertarget"));
    const place = asked.getBoundingClientRect();
    requestAnimationFrame(() => {
      const left = Math.min(place.left, window.innerWidth - entry.offsetWidth - 16);
      const below = place.bottom + 8;
      const top = below + entry.offsetHeight < window.innerHeight ? below : Math.max(8, place.top - entry.offsetHeight - 8);
      entry.style.left = `${Math.max(left, 16)}px`;
      entry.style.top = `${top}px`;
    });
  }

  // The quality limit: the answer under each limit that changes it is in the page; one of them is shown.

  function limits() {
    const range = document.getElementById("limit");
    if (!range) return;
    const steps = [...document.querySelectorAll("template.limit")];
    const measure = document.getElementById("limit-measure");
    const words = document.getElementById("limit-words");
    const back = document.getElementById("limit-back");
    const given = { measure: steps[0].dataset.measure, place: Number(range.value) };
    const shown = () => {
      const own = steps.filter((step) => step.dataset.measure === (measure?.value ?? given.measure));
      range.max = String(own.length - 1);
      return own[Number(range.value)];
    };
    const show = () => {
      const step = shown();
      for (const part of step.content.cloneNode(true).children) {
        document.querySelector(`#answer > [data-slot=${part.dataset.slot}]`).replaceChildren(...part.childNodes);
      }
      words.textContent = step.dataset.words;
      range.setAttribute("aria-valuetext", step.dataset.words);
      back.hidden = step.dataset.measure === given.measure && Number(range.value) === given.place;
    };
    const sayAnswer = () => say([...document.querySelectorAll("#answer .lead")].map((one) => one.textContent).join(" "));
    range.addEventListener("input", show);
    range.addEventListener("change", sayAnswer);
    measure?.addEventListener("change", () => {
      range.value = measure.value === given.measure ? String(given.place) : "0";
      show();
      sayAnswer();
    });
    back.addEventListener("click", () => {
      if (measure) measure.value = given.measure;
      shown();
      range.value = String(given.place);
      show();
      range.focus();
    });
  }

  function start() {
    limits();
    document.querySelectorAll("table").forEach(sortable);
    document.querySelectorAll(".heat").forEach(tips);
    const widened = new ResizeObserver((entries) => entries.forEach(({ target }) => tellWidth(target)));
    document.querySelectorAll(".scroll").forEach((place) => widened.observe(place));
    document.addEventListener("click", besideItsHead);
    const variants = document.getElementById("variants");
    const scenarios = document.getElementById("scenarios");
    if (variants) chips(variants, "variant", shownVariants);
    if (scenarios) chips(scenarios, "scenario", shownScenarios);
    const theme = document.getElementById("theme");
    const nameTheme = () => { theme.textContent = isDark() ? "Light" : "Dark"; };
    theme.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      nameTheme();
      drawAll();
    });
    darkOutside.addEventListener("change", () => { nameTheme(); drawAll(); });
    nameTheme();
    document.getElementById("copy")?.addEventListener("click", (event) => {
      const done = () => { event.target.textContent = "Copied"; };
      navigator.clipboard?.writeText(document.getElementById("command").textContent).then(done, () => {});
    });
    const resized = new ResizeObserver((entries) => {
      for (const { target } of entries) if (target.clientWidth !== target._fullLayout?.width) drawLater(target);
    });
    if (canvases.length > 0) loadPlotly().then(() => canvases.forEach((canvas) => resized.observe(canvas)), showPictures);
    window.addEventListener("beforeprint", () => drawAll(640));
    window.addEventListener("afterprint", () => drawAll());
  }

  start();
})();
