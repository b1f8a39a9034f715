// Passkeys: asks the server what the browser is to answer, lets the browser answer, and sends the form.
"use strict";
(() => {
  const texts = JSON.parse(document.documentElement.dataset.texts); // in the language of the page
  const toBytes = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (sign) => sign.charCodeAt(0));
  const toText = (buffer) =>
    btoa(String.fromCharCode(...new Uint8Array(buffer))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");

  const fetchOptions = async (form) => {
    const answer = await fetch(`${form.getAttribute("action")}/options`, { method: "POST", body: new URLSearchParams(new FormData(form)) });
    if (!answer.ok) throw new Error(answer.status === 401 ? texts.wrongPassword : texts.passkeyRefused);
    const options = await answer.json();
    options.challenge = toBytes(options.challenge);
    if (options.user) options.user.id = toBytes(options.user.id);
    for (const each of [...(options.excludeCredentials || []), ...(options.allowCredentials || [])]) each.id = toBytes(each.id);
    return options;
  };

  const ask = async (form) => {
    const publicKey = await fetchOptions(form);
    const isNew = form.dataset.passkey === "new";
    const made = isNew ? await navigator.credentials.create({ publicKey }) : await navigator.credentials.get({ publicKey });
    const said = made.response;
    const response = isNew
      ? { clientDataJSON: toText(said.clientDataJSON), attestationObject: toText(said.attestationObject) }
      : {
          clientDataJSON: toText(said.clientDataJSON),
          authenticatorData: toText(said.authenticatorData),
          signature: toText(said.signature),
          userHandle: said.userHandle ? toText(said.userHandle) : null,
        };
    return JSON.stringify({ id: made.id, rawId: toText(made.rawId), type: made.type, response, clientExtensionResults: {} });
  };

  document.addEventListener("submit", async (event) => {
    const form = event.target.closest("form[data-passkey]");
    if (!form) return;
    event.preventDefault();
    const button = form.querySelector("button");
    const trouble = form.querySelector("[data-passkey-trouble]");
    button.disabled = true;
    trouble.hidden = true;
    try {
      form.elements.answer.value = await ask(form);
      form.submit();
    } catch (error) {
      trouble.textContent = error.name === "NotAllowedError" ? texts.passkeyCancelled : error.message;
      trouble.hidden = false;
      button.disabled = false;
    }
  });
})();
