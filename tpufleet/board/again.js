// Looks again every few seconds, and exchanges what is in <main> when something is new: for the page of the one who invites.
"use strict";
let tag = null;

async function look() {
  if (document.hidden) return;
  try {
    const answer = await fetch(location.pathname, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
    document.body.classList.toggle("stale", answer.status >= 400);
    if (answer.status !== 200) return;
    tag = answer.headers.get("ETag");
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
    const shown = document.querySelector("main");
    if (fresh.innerHTML !== shown.innerHTML && !shown.contains(document.activeElement)) shown.replaceWith(fresh);
    else if (fresh.innerHTML !== shown.innerHTML) tag = null; // somebody is about to press a button: not under their finger
  } catch {
    document.body.classList.add("stale"); // the board was closed, or the network is gone
  }
}

setInterval(look, 3000);
document.addEventListener("visibilitychange", look);
look();
