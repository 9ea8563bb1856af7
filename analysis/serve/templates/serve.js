"use strict";
// Shows the age of times of the last day, and new blocks as they come. Texts become text, never markup.
(() => {
  const age = seconds => seconds < 90 ? `${Math.round(seconds)} s ago`
    : seconds < 5400 ? `${Math.round(seconds / 60)} min ago` : `${Math.round(seconds / 3600)} h ago`;
  for (const time of document.querySelectorAll("time[datetime*='T']")) {
    const seconds = (Date.now() - Date.parse(time.dateTime)) / 1000;
    if (seconds >= 0 && seconds < 86400) time.title = age(seconds);
  }

  const live = document.getElementById("live");
  const tiles = document.getElementById("tiles");
  if (!live || !tiles) return;
  const number = new Intl.NumberFormat("en");
  const made = (name, kind, text) => {
    const element = document.createElement(name);
    element.className = kind;
    element.textContent = text;
    return element;
  };
  const say = (isOn, head, rest) => {
    live.classList.toggle("off", !isOn);
    live.replaceChildren(made("b", "", head), ` ${rest}`);
  };
  const sentence = words => words.slice(0, 1).toUpperCase() + words.slice(1) + (/[.?!]$/.test(words) ? "" : ".");
  const tileOf = hash => [...tiles.children].find(tile => (tile.dataset.hash ?? tile.querySelector("a")?.href ?? "").endsWith(hash));
  const markStale = tile => {
    tile.classList.add("stale");
    tile.querySelector(".tile-facts:last-of-type").textContent = "stale";
  };

  const onState = state => {
    const waiting = Object.entries(state.nodes).map(([node, each]) => `${node}: ${number.format(each.n_mempool)} transactions wait`);
    if (state.ready) say(true, "Watching.", `${waiting.join("; ")}.`);
    else say(false, "Not watching.", sentence(state.reasons.join("; ")));
  };
  const onBlock = block => {
    if (tileOf(block.block_hash)) return;
    const tile = made("li", "tile new", "");
    tile.dataset.hash = block.block_hash;
    const pool = [...tiles.children].find(each => each.querySelector(".tile-pool")?.textContent === block.pool_name);
    tile.style.setProperty("--pool", pool ? pool.style.getPropertyValue("--pool") : "var(--pool-other)");
    tile.style.setProperty("--fill", `${(block.weight_wu ?? 0) / 40000}%`);
    const fees = block.fees_sat === null || block.is_empty ? "" : `${(block.fees_sat / 1e8).toFixed(5)}\u00a0BTC`;
    const evidence = block.method ? `by ${block.method}${block.n_conflicts ? ", disputed" : ""}` : "no rule matches";
    const inside = made("div", "tile-inside", "");
    inside.append(
      made("span", "tile-height", number.format(block.height)),
      made("bdi", "tile-pool", block.pool_name),
      made("span", "tile-facts", evidence),
      made("span", "tile-fill", ""),
      made("span", "tile-facts", block.is_empty ? "empty" : `${number.format(block.n_tx)} tx`),
      made("span", "tile-facts tile-fees", fees),
      made("span", "tile-facts", block.verdict === "valid" ? "not built yet" : block.verdict),
    );
    tile.append(inside);
    const after = [...tiles.children].find(each => Number(each.querySelector(".tile-height").textContent.replaceAll(",", "")) <= block.height);
    tiles.insertBefore(tile, after ?? null);
  };
  const onArrival = arrival => {
    const tile = tileOf(arrival.block_hash);
    if (tile && arrival.event === "disconnected") markStale(tile);
    if (tile && arrival.event === "connected") tile.classList.remove("stale");
  };
  const onTemplate = match => {
    const tile = tileOf(match.block_hash);
    if (!tile?.classList.contains("new") || tile.dataset.node || !match.n_promised) return;
    tile.dataset.node = match.node; // of several nodes the first counts
    const passed = match.n_promised - match.n_matched;
    const facts = made("span", "tile-facts", `${Math.floor(100 * match.n_matched / match.n_promised)}\u00a0% of template`);
    tile.title = `${match.node} promised ${number.format(match.n_promised)} transactions: `
      + `${number.format(match.n_matched)} taken, ${number.format(passed)} passed over; ${number.format(match.n_extra)} others`;
    tile.querySelector(".tile-fees").after(facts, made("span", "tile-facts", `${number.format(passed)} passed over`));
  };
  const losses = [];
  const lost = made("p", "watch off", "");
  lost.id = "lost";
  const noteLoss = text => {
    if (losses.at(-1) === text) return;
    losses.push(text);
    lost.replaceChildren(made("b", "", "Not all was seen."), ` ${losses.slice(-5).join("; ")}.`);
    live.after(lost);
  };
  const onLoss = loss => noteLoss(`${loss.node}: a gap in ${loss.topic} (${loss.end_reason.replaceAll("_", " ")})`);
  const onMissed = () => noteLoss("blocks came that were not shown here; the next build has them");

  const source = new EventSource(live.dataset.live);
  const listen = (kind, act) => source.addEventListener(kind, event => act(JSON.parse(event.data)));
  listen("state", onState);
  listen("block", onBlock);
  listen("arrival", onArrival);
  listen("loss", onLoss);
  listen("template", onTemplate);
  listen("missed", onMissed);
  let failing = 0;
  source.addEventListener("open", () => { clearTimeout(failing); failing = 0; });
  source.addEventListener("error", () => {
    // A stream ends and begins again by itself; only a longer silence is one.
    failing ||= setTimeout(() => say(false, "Not watching.", "This page has lost its server; it goes on by itself when the server is back."), 1500);
  });
})();
