"use strict";
(() => {
  const root = document.documentElement;
  const data = JSON.parse(document.getElementById("data").textContent);
  const frame = document.getElementById("mapframe");
  const canvas = document.getElementById("canvas");
  const readout = document.getElementById("readout");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const ink = (name) => getComputedStyle(document.body).getPropertyValue(name).trim();

  document.getElementById("theme").addEventListener("click", () => {
    const now = root.dataset.theme || (dark.matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
    draw();
  });
  dark.addEventListener("change", () => draw());
  if (!frame) return;

  const count = data.ranks.length;
  const grid = new Map();
  for (let i = 0; i < count; i += 1) grid.set(`${data.x[i]},${data.y[i]}`, i);
  let cursor = -1;
  let scale = 1;

  function describe(i) {
    const known = data.dimensions.map((name, d) => (data.coordinates[d][i] < 0 ? "" : name + data.coordinates[d][i])).filter(Boolean).join("/");
    const where = [known, data.node[i] < 0 ? "" : data.nodes[data.node[i]]].filter(Boolean).join(", ");
    const held = data.wait[i] < 0 ? "" : `. In ${data.waits[data.wait[i]]}`;
    const dumb = data.silent[i] ? ". It left no evidence of its own" : "";
    return `Rank ${data.ranks[i]}${where ? ` (${where})` : ""}: ${data.states[data.state[i]][2]}${held}${dumb}.`;
  }

  function choose(i) {
    if (i < 0 || i === cursor) return;
    cursor = i;
    readout.textContent = describe(i);
    const mark = document.getElementById("cursor");
    if (mark) { mark.setAttribute("x", data.x[i]); mark.setAttribute("y", data.y[i]); } else draw();
  }

  function under(event) {
    const picture = canvas || frame.querySelector("svg");
    const box = picture.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * data.width;
    const y = ((event.clientY - box.top) / box.height) * data.height;
    for (let dx = 0; dx < data.cell; dx += 1) {
      for (let dy = 0; dy < data.cell; dy += 1) {
        const found = grid.get(`${Math.floor(x) - dx},${Math.floor(y) - dy}`);
        if (found !== undefined) return found;
      }
    }
    return -1;
  }

  // The next cell in a direction: the nearest one that lies that way, straight ones before slanted ones.
  function next(dx, dy) {
    if (cursor < 0) return data.callouts.length ? data.ranks.indexOf(data.callouts[0][0]) : 0;
    let best = cursor;
    let least = Infinity;
    for (let i = 0; i < count; i += 1) {
      const ahead = (data.x[i] - data.x[cursor]) * dx + (data.y[i] - data.y[cursor]) * dy;
      const aside = Math.abs((data.x[i] - data.x[cursor]) * dy) + Math.abs((data.y[i] - data.y[cursor]) * dx);
      if (ahead > 0 && ahead + 4 * aside < least) { least = ahead + 4 * aside; best = i; }
    }
    return best;
  }

  frame.addEventListener("pointermove", (event) => choose(under(event)));
  frame.addEventListener("keydown", (event) => {
    const step = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    if (!step) return;
    event.preventDefault();
    choose(next(step[0], step[1]));
  });

  function draw() {
    if (!canvas) return;
    const dense = window.devicePixelRatio || 1;
    scale = Math.min(2.2, data.scale, Math.max(0.35, (document.querySelector("main").clientWidth - 72) / data.width));
    canvas.width = Math.round(data.width * scale * dense);
    canvas.height = Math.round(data.height * scale * dense);
    canvas.style.width = `${Math.round(data.width * scale)}px`;
    const pen = canvas.getContext("2d");
    pen.setTransform(scale * dense, 0, 0, scale * dense, 0, 0);
    const fills = { culprit: "--culprit", suspect: "--suspect", idle: "--idle", silent: "--paper", waits: "--w5" };
    const colors = data.states.map(([style]) => ink(fills[style] || `--w${style.slice(4)}`));
    const soft = ink("--soft");
    const side = data.cell - (scale < 0.8 ? 0.4 : 1);
    for (let i = 0; i < count; i += 1) {
      pen.fillStyle = colors[data.state[i]];
      pen.fillRect(data.x[i], data.y[i], side, side);
    }
    pen.strokeStyle = soft;
    pen.lineWidth = 1.2;
    pen.beginPath();
    for (let i = 0; i < count; i += 1) {
      if (!data.silent[i]) continue;
      for (const part of [0.5, 1, 1.5]) {
        const a = Math.min(side, side * part);
        const b = Math.max(0, side * part - side);
        pen.moveTo(data.x[i] + b, data.y[i] + a);
        pen.lineTo(data.x[i] + a, data.y[i] + b);
      }
    }
    pen.stroke();
    const letter = 11 / scale;
    pen.font = `${letter}px system-ui, sans-serif`;
    pen.fillStyle = soft;
    for (const [x, y, text, row] of data.labels) {
      pen.textAlign = row ? "right" : "left";
      pen.fillText(text, x, y);
    }
    pen.textAlign = "left";
    for (const [rank, x, y] of data.callouts) callout(pen, rank, x, y, letter);
    if (cursor >= 0) {
      pen.strokeStyle = ink("--ink");
      pen.lineWidth = 1.5 / scale;
      pen.strokeRect(data.x[cursor], data.y[cursor], side, side);
    }
  }

  // A cell of a few pixels is lost among thousands: a ring and a name around it.
  function callout(pen, rank, x, y, letter) {
    const middle = data.cell / 2;
    const radius = Math.max(middle * 1.6, 9 / scale);
    pen.strokeStyle = ink("--tone");
    pen.lineWidth = 2.5 / scale;
    pen.beginPath();
    pen.arc(x + middle, y + middle, radius, 0, 2 * Math.PI);
    pen.stroke();
    const text = `rank ${rank}`;
    pen.font = `bold ${letter * 1.25}px system-ui, sans-serif`;
    const wide = pen.measureText(text).width;
    const left = x + middle + radius + wide > data.width ? x + middle - radius - wide - 4 / scale : x + middle + radius + 4 / scale;
    pen.lineWidth = 5 / scale;
    pen.strokeStyle = ink("--paper");
    pen.strokeText(text, left, y + middle + letter / 2);
    pen.fillStyle = ink("--tone");
    pen.fillText(text, left, y + middle + letter / 2);
  }

  draw();
  window.addEventListener("resize", draw);
})();
