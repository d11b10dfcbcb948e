// Keeps the list fresh without touching the mail that is being read.
const list = document.getElementById("list");
const here = location.pathname;
setInterval(async () => {
  const answer = await fetch("/list").catch(() => null);
  if (!answer || !answer.ok) return;
  list.innerHTML = await answer.text();
  list.querySelector(`a[href="${here}"]`)?.setAttribute("aria-current", "page");
}, 1500);
