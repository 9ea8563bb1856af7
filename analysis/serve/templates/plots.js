"use strict";
// Draws charts anew from their numbers with uPlot, so that a reader can zoom. Without it the still drawings remain.
(() => {
  if (!window.uPlot) return;
  const DAY_S = 86400;
  const WINDOWS = [["24 h", 1], ["7 days", 7], ["30 days", 30], ["1 year", 365]];
  const NARROWEST = 1000; // the whole is at most so many times as wide as what is shown
  const LINE_PX = 22; // an upright label beside the one before it
  const FONT = "13px system-ui, sans-serif";
  const paint = text => text.replace(/var\((--[\w-]+)\)/g, (_, name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  const pale = (colour, alpha) => paint(colour) + Math.round(alpha * 255).toString(16).padStart(2, "0");

  const plain = value => Math.abs(value) >= 1000 && Math.abs(value) < 1e9
    ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(4)));
  const metric = value => {
    const step = value > 0 ? Math.min(8, Math.max(0, Math.floor(Math.log10(value) / 3))) : 0;
    return `${Number((value / 1000 ** step).toPrecision(3))}\u00a0${["", "k", "M", "G", "T", "P", "E", "Z", "Y"][step]}H/s`;
  };
  const length = value => {
    const [size, unit] = [[DAY_S, "d"], [3600, "h"], [60, "min"], [1, "s"]].find(([size]) => value >= size) ?? [1, "s"];
    return `${plain(value / size)}\u00a0${unit}`;
  };
  const written = (look, seconds) => new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", ...look }).format(1000 * seconds);
  const DATE = { day: "numeric", month: "short" };
  const UNITS = {
    number: plain,
    usd: value => `$${plain(value)}`,
    hashrate: metric,
    duration: length,
    percent: value => `${Number((100 * value).toPrecision(4))}\u00a0%`,
    time: seconds => written({ ...DATE, year: "numeric" }, seconds),
  };
  const times = (_plot, splits, _axis, _space, step) => splits.map(seconds => written(
    step >= 28 * DAY_S ? { month: "short", year: "numeric" } : step >= DAY_S ? DATE
      : { hour: "2-digit", minute: "2-digit", ...(seconds % DAY_S ? {} : DATE) }, seconds));

  const hatch = colour => {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const drawing = tile.getContext("2d");
    drawing.strokeStyle = paint(colour);
    drawing.lineWidth = 2.5;
    for (const left of [-8, 0, 8]) { drawing.moveTo(left, 8); drawing.lineTo(left + 8, 0); }
    drawing.stroke();
    return drawing.createPattern(tile, "repeat");
  };

  // Each series becomes three columns: its values, and the lower and upper ends of its band.
  const seriesOf = plot => plot.series.flatMap(one => {
    const isArea = one.form === "area";
    const isDotted = one.form === "points" || one.form === "rings";
    const paths = one.form === "step" || isArea ? uPlot.paths.stepped({ align: 1 }) : isDotted ? () => null : uPlot.paths.linear();
    const colour = paint(one.colour);
    const edge = { paths, points: { show: false }, stroke: "transparent", width: 0 };
    const points = isArea || one.form === "step" || (one.dashes.length && !isDotted) ? { show: false }
      : { show: isDotted || one.points.length <= 62, size: 6, fill: one.form === "rings" ? paint("var(--paper)") : colour, stroke: colour };
    return [
      { label: one.label, stroke: isArea ? paint("var(--paper)") : colour, width: isArea ? 0.75 : 2, dash: one.dashes, paths, points },
      { ...edge, label: "low" }, { ...edge, label: "high" },
    ];
  });
  const bandsOf = plot => plot.series.flatMap((one, place) => one.form === "points" || one.form === "rings" ? [] : [{
    series: [3 * place + 3, 3 * place + 2],
    fill: one.is_hatched ? hatch(one.colour) : one.form === "area" ? paint(one.colour) : pale(one.colour, .16),
  }]);
  const dataOf = plot => uPlot.join(plot.series.map(one => [0, 1, 2, 3].map(column => one.points.map(point => point[column]))));

  const drawMarks = (chart, plot) => {
    const { ctx: pen, bbox: box } = chart;
    const at = x => chart.valToPos(x, "x", true);
    const ratio = devicePixelRatio;
    pen.save();
    pen.beginPath();
    pen.rect(box.left, 0, box.width, box.top + box.height);
    pen.clip();
    for (const [from, to] of plot.frames) {
      pen.fillStyle = pale("var(--paper)", .45);
      pen.strokeStyle = paint("var(--ink)");
      pen.setLineDash([3 * ratio, 3 * ratio]);
      pen.fillRect(at(from), box.top, at(to) - at(from), box.height);
      pen.strokeRect(at(from), box.top, at(to) - at(from), box.height);
    }
    plot.series.forEach((one, place) => {
      if (one.form !== "points" && one.form !== "rings") return;
      pen.strokeStyle = pale(one.colour, .6);
      pen.setLineDash([]);
      pen.lineWidth = 1.5 * ratio;
      for (const [x, , low, high] of one.points) {
        if (low === null || high === null) continue;
        pen.beginPath();
        pen.moveTo(at(x), chart.valToPos(low, "y", true));
        pen.lineTo(at(x), chart.valToPos(high, "y", true));
        pen.stroke();
      }
    });
    pen.font = FONT.replace("13", String(13 * ratio));
    pen.textAlign = "center";
    let last = -Infinity;
    for (const mark of [...plot.marks].sort((one, other) => one.x - other.x)) {
      const x = at(mark.x);
      pen.strokeStyle = paint("var(--muted)");
      pen.setLineDash([2 * ratio, 3 * ratio]);
      pen.lineWidth = ratio;
      if (mark.to_x !== null) {
        pen.fillStyle = pale("var(--muted)", .25);
        pen.fillRect(x, box.top, at(mark.to_x) - x, box.height);
      } else {
        pen.beginPath();
        pen.moveTo(x, box.top);
        pen.lineTo(x, box.top + box.height);
        pen.stroke();
      }
      pen.fillStyle = paint("var(--ink)");
      if (x >= box.left && x - last > LINE_PX * ratio) { pen.fillText(mark.label, x, box.top - 6 * ratio); last = x; }
    }
    pen.restore();
  };

  const made = (name, kind, text = "") => {
    const element = document.createElement(name);
    element.className = kind;
    element.textContent = text;
    return element;
  };

  const draw = host => {
    const plot = JSON.parse(host.dataset.plot);
    const data = dataOf(plot);
    const whole = [data[0][0], data[0].at(-1)];
    const along = plot.is_x_log ? Math.log : x => x;
    const back = plot.is_x_log ? Math.exp : x => x;
    const room = made("div", "plot");
    room.setAttribute("role", "group");
    const picture = made("div", "plot-picture");
    picture.setAttribute("role", "img");
    picture.setAttribute("aria-label", plot.label);
    const tools = made("p", "plot-tools");
    const shown = made("span", "plot-shown");
    shown.setAttribute("role", "status");
    let chart = null;
    const size = () => ({ width: Math.max(200, room.clientWidth), height: room.clientWidth < 480 ? 250 : 300 });

    const show = (from, to) => {
      const [first, last] = whole.map(along);
      const width = Math.min(last - first, Math.max((last - first) / NARROWEST, to - from));
      const begin = Math.min(last - width, Math.max(first, from));
      chart.setScale("x", { min: back(begin), max: back(begin + width) });
    };
    const moved = (factor, shift) => {
      const [from, to] = [chart.scales.x.min, chart.scales.x.max].map(along);
      const middle = (from + to) / 2 + shift * (to - from);
      show(middle - (to - from) * factor / 2, middle + (to - from) * factor / 2);
    };
    const button = (text, words, act) => {
      const element = made("button", "", text);
      element.type = "button";
      if (words) element.setAttribute("aria-label", words);
      element.addEventListener("click", act);
      tools.append(element);
      return element;
    };
    const earlier = button("\u2190", plot.x_unit === "time" ? "Earlier" : "To the left", () => moved(1, -.5));
    const nearer = button("+", "Zoom in", () => moved(.5, 0));
    const farther = button("\u2212", "Zoom out", () => moved(2, 0));
    const later = button("\u2192", plot.x_unit === "time" ? "Later" : "To the right", () => moved(1, .5));
    if (plot.x_unit === "time") {
      for (const [text, days] of WINDOWS) {
        const inside = data[0].filter(x => x >= whole[1] - days * DAY_S).length;
        if (inside > 1 && days * DAY_S < whole[1] - whole[0]) button(text, "", () => show(whole[1] - days * DAY_S, whole[1]));
      }
    }
    const all = button("All", "", () => show(...whole.map(along)));
    tools.append(shown);

    const onScale = (_chart, name) => {
      if (name !== "x") return;
      const { min, max } = chart.scales.x;
      const slack = (along(whole[1]) - along(whole[0])) / 1e6;
      const isFirst = along(min) - along(whole[0]) <= slack, isLast = along(whole[1]) - along(max) <= slack;
      for (const [element, isOff] of [[earlier, isFirst], [later, isLast], [farther, isFirst && isLast], [all, isFirst && isLast],
        [nearer, along(max) - along(min) <= 1.01 * (along(whole[1]) - along(whole[0])) / NARROWEST]]) element.disabled = isOff;
      shown.textContent = isFirst && isLast ? "" : `${UNITS[plot.x_unit](min)} to ${UNITS[plot.x_unit](max)}`;
      host.dataset.shown = `${min} ${max}`;
    };
    const build = () => {
      const before = chart && [chart.scales.x.min, chart.scales.x.max];
      chart?.destroy();
      const grid = { stroke: paint("var(--rule)"), width: 1 };
      const axis = { font: FONT, labelFont: FONT, stroke: paint("var(--muted)"), ticks: grid };
      const write = unit => (_plot, splits) => splits.map(value => value === null ? "" : UNITS[unit](value));
      const reach = plot.y_domain ? () => plot.y_domain
        : plot.is_y_log ? undefined : (_plot, low, high) => [Math.min(0, low ?? 0), 1.05 * high || 1];
      const beside = (_plot, texts) => 18 + 7.5 * Math.max(4, ...(texts ?? []).map(text => text.length));
      chart = new uPlot({
        ...size(),
        padding: [24, 26, 0, 0],
        legend: { show: false },
        cursor: { y: false, drag: { x: true, y: false }, points: { show: (self, place) => plot.series[(place - 1) / 3]?.form !== "area" && place % 3 === 1 ? undefined : false } },
        tzDate: seconds => uPlot.tzDate(new Date(1000 * seconds), "Etc/UTC"),
        scales: {
          x: { time: plot.x_unit === "time", distr: plot.is_x_log ? 3 : 1 },
          y: { distr: plot.is_y_log ? 3 : 1, range: reach },
        },
        axes: [
          { ...axis, grid: { show: false }, label: plot.x_title, labelSize: 24, size: 30, space: 96, values: plot.x_unit === "time" ? times : write(plot.x_unit) },
          { ...axis, grid, size: beside, values: write(plot.y_unit) },
        ],
        series: [{}, ...seriesOf(plot)],
        bands: bandsOf(plot),
        hooks: { setScale: [onScale], draw: [self => drawMarks(self, plot)] },
      }, data, picture);
      chart.over.addEventListener("pointermove", event => {
        const x = chart.posToVal(event.offsetX, "x");
        const middle = strip => (strip[0] + strip[1]) / 2;
        const near = plot.words.find(strip => strip[0] <= x && x <= strip[1])
          ?? plot.words.reduce((best, strip) => Math.abs(middle(strip) - x) < Math.abs(middle(best) - x) ? strip : best);
        const marked = plot.marks.filter(mark => Math.abs(chart.valToPos(mark.x, "x") - event.offsetX) < 6).map(mark => mark.words);
        chart.over.dataset.value = [...marked, near[2]].join("; ");
      }, { passive: true });
      if (before) chart.setScale("x", { min: before[0], max: before[1] });
    };

    if (plot.y_title) room.append(made("p", "plot-unit", plot.y_title));
    room.append(picture, tools);
    host.append(room);
    host.classList.add("plotted");
    build();
    new ResizeObserver(() => chart.setSize(size())).observe(room);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", build);
  };

  // A chart that is folded away, or far below, is drawn when it comes near.
  const watch = new IntersectionObserver(entries => {
    for (const entry of entries.filter(each => each.isIntersecting)) {
      watch.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "300px" });
  for (const host of document.querySelectorAll("[data-plot]")) watch.observe(host);
})();
