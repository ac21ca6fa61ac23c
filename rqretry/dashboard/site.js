"use strict";
// Fetches the page again when the server says that there are newer numbers, and replaces its live
// parts; never while somebody selects something in them, or looks at another tab.
(() => {
  const live = document.getElementById("live");
  const parts = () => document.querySelectorAll("[data-live]");
  if (!live || !parts().length) return;
  let source = null, polling = 0, busy = false, seen = new Date();

  const state = (ok, text) => {
    live.className = ok ? "on" : "off";
    if (live.textContent !== text) live.textContent = text;
  };
  const busyWith = part =>
    part.querySelector("input:checked, details[open]") ||
    part.contains(document.activeElement) && document.activeElement.matches("input, select") ||
    (getSelection().toString() && part.contains(getSelection().anchorNode));

  function swap(page) {
    for (const part of parts()) {
      const fresh = page.getElementById(part.id);
      if (!fresh || fresh.innerHTML === part.innerHTML || busyWith(part)) continue;
      const at = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      part.replaceWith(document.adoptNode(fresh));
      if (at) [...fresh.querySelectorAll("a")].find(a => a.getAttribute("href") === at)?.focus({preventScroll: true});
    }
    document.title = page.title;
  }
  async function refresh() {
    if (busy || document.hidden) return;
    busy = true;
    try {
      const answer = await fetch(location.href, {cache: "no-store"});
      if (!answer.ok) throw new Error(answer.status);
      swap(new DOMParser().parseFromString(await answer.text(), "text/html"));
      seen = new Date();
      state(true, "live");
    } catch {
      state(false, "no answer since " + seen.toLocaleTimeString());
    } finally {
      busy = false;
    }
  }
  function listen() {
    source?.close();
    clearInterval(polling);
    if (document.hidden) return;
    source = new EventSource("/live");
    source.onopen = () => state(true, "live");
    source.onmessage = refresh;
    source.onerror = () => {
      if (source.readyState !== EventSource.CLOSED) return; // it comes again by itself
      clearInterval(polling);
      polling = setInterval(() => { refresh(); listen(); }, 10000); // no stream is free, or the server is away
    };
  }
  document.addEventListener("visibilitychange", () => { listen(); refresh(); });
  listen();
})();
