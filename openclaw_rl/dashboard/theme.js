// Before anything is painted: the theme that was chosen last. Everything else waits for main.js.
{
  const chosen = localStorage.getItem("theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset["theme"] = chosen;
}
