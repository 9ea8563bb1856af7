"use strict";
// Sorts tables, shows the values of marks, folds contents and sections on a phone, opens what a link leads to.
(() => {
  const small = matchMedia("(max-width: 46rem)");
  const menu = document.querySelector("details.menu");
  document.documentElement.classList.add("scripted");

  const fold = () => { menu.open = !small.matches; };
  small.addEventListener("change", fold);
  menu.addEventListener("click", event => { if (event.target.closest("a")) fold(); });
  fold();

  // On a phone a section shows its findings; its charts and tables come with a tap.
  for (const section of document.querySelectorAll("main > section:has(> .figures)")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "unfold";
    button.textContent = "Charts and tables";
    const turn = isFolded => {
      section.classList.toggle("folded", isFolded);
      button.setAttribute("aria-expanded", String(!isFolded));
    };
    button.addEventListener("click", () => turn(!section.classList.contains("folded")));
    small.addEventListener("change", () => turn(small.matches));
    section.querySelector(".figures > div").append(button);
    turn(small.matches);
  }

  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const section = target?.parentElement.closest("section.folded");
    if (section) section.querySelector("button.unfold").click();
    for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
    if (target) target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  if (location.hash) reveal();

  // A number that is only shown has commas between thousands, and may be a percentage.
  const key = (row, column) => {
    const cell = row.cells[column];
    const text = cell.textContent.trim();
    const given = cell.dataset.sort ?? text;
    const digits = cell.dataset.sort ?? text.replace(/[,%\s]/g, "").replace("\u2212", "-");
    return { given, number: digits === "" ? NaN : Number(digits), isMissing: given === "" || given === "\u2013" };
  };
  const compare = (one, other) => {
    if (!Number.isNaN(one.number) && !Number.isNaN(other.number)) return one.number - other.number;
    return one.given.localeCompare(other.given, "en", { numeric: true });
  };
  const sort = (table, head) => {
    const column = Number(head.dataset.column);
    const isDown = head.getAttribute("aria-sort") !== "descending";
    for (const other of table.tHead.querySelectorAll("[aria-sort]")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", isDown ? "descending" : "ascending");
    const rows = [...table.tBodies[0].rows].map(row => ({ row, key: key(row, column) }));
    rows.sort((one, other) => {
      const total = other.row.classList.contains("total") - one.row.classList.contains("total");
      return total || one.key.isMissing - other.key.isMissing || compare(one.key, other.key) * (isDown ? -1 : 1);
    });
    table.tBodies[0].append(...rows.map(({ row }) => row));
  };
  for (const table of document.querySelectorAll("main table")) {
    if (table.tBodies[0].rows.length < 2) continue;
    for (const head of table.tHead.querySelectorAll("[data-column]")) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      button.addEventListener("click", () => sort(table, head));
      head.append(button);
    }
  }

  // The browser would show a title as well, a moment later.
  for (const title of document.querySelectorAll("svg [data-value] > title")) {
    title.parentNode.dataset.value = title.textContent;
    title.remove();
  }
  const tip = document.getElementById("tip");
  const show = event => {
    const mark = event.target.closest?.("svg [data-value], .u-over[data-value]");
    tip.hidden = !mark;
    if (!mark) return;
    tip.textContent = mark.dataset.value;
    const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    tip.style.transform = `translate(${Math.max(8, left)}px, ${Math.max(8, event.clientY - tip.offsetHeight - 12)}px)`;
  };
  addEventListener("pointermove", show, { passive: true });
  addEventListener("pointerdown", show, { passive: true });
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
})();
