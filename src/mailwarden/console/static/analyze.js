// Offers the sender and the recipients that a chosen message names; what a person has typed stays.
"use strict";
(() => {
  const HEAD = 65536;
  const ADDRESS = /[^\s<>,;:"()]+@[^\s<>,;:"()]+/g;

  const valuesOf = (head, names) =>
    head
      .replace(/\r?\n[ \t]+/g, " ")
      .split(/\r?\n/)
      .filter((line) => names.includes(line.slice(0, line.indexOf(":")).toLowerCase()))
      .flatMap((line) => line.slice(line.indexOf(":") + 1).match(ADDRESS) || []);

  const offer = (field, value) => {
    if (!field || (field.value && field.value !== field.dataset.offered)) return;
    field.value = value;
    field.dataset.offered = value;
  };

  const read = async (form, source) => {
    const text = typeof source === "string" ? source.slice(0, HEAD) : await source.slice(0, HEAD).text();
    const head = text.split(/\r?\n\r?\n/, 1)[0];
    offer(form.elements.sender, valuesOf(head, ["from"])[0] || "");
    offer(form.elements.recipients, [...new Set(valuesOf(head, ["to", "cc"]))].slice(0, 100).join("\n"));
  };

  document.addEventListener("change", (event) => {
    const form = event.target.form;
    if (!form || !("envelope" in form.dataset)) return;
    if (event.target.type === "file" && event.target.files.length) read(form, event.target.files[0]);
    if (event.target.name === "text") read(form, event.target.value);
  });
})();
