// Opens a new mail to the report address with the selected message attached. The user sends it.
"use strict";

const TEXTS = {
  en: {
    title: "Report message",
    question: "What is this message?",
    phishing: "Phishing or fraud",
    spam: "Spam",
    good: "Not spam",
    waiting: "Open this page with the button in Outlook.",
    ready: "Outlook opens a mail with the message attached. Press Send.",
    opened: "Press Send in the new mail. You get an answer when the report is decided.",
    failed: "Outlook could not open the mail. Forward the message as attachment to",
    body: "Reported with the button in Outlook.",
  },
  de: {
    title: "Nachricht melden",
    question: "Was ist diese Nachricht?",
    phishing: "Phishing oder Betrug",
    spam: "Spam",
    good: "Kein Spam",
    waiting: "Öffnen Sie diese Seite mit der Schaltfläche in Outlook.",
    ready: "Outlook öffnet eine E-Mail mit der Nachricht als Anhang. Klicken Sie auf Senden.",
    opened: "Klicken Sie in der neuen E-Mail auf Senden. Sie bekommen eine Antwort, wenn entschieden ist.",
    failed: "Outlook konnte die E-Mail nicht öffnen. Leiten Sie die Nachricht als Anhang weiter an",
    body: "Gemeldet mit der Schaltfläche in Outlook.",
  },
};
const MAX_SUBJECT = 200; // characters; Outlook accepts 255
const MAX_NAME = 100; // characters of the attachment's name

const address = document.documentElement.dataset.address;
const buttons = document.querySelectorAll("button");
const status = document.getElementById("status");
let texts = TEXTS.en;

function show(language) {
  const code = String(language || "en").slice(0, 2).toLowerCase();
  texts = TEXTS[code] || TEXTS.en;
  document.documentElement.lang = TEXTS[code] ? code : "en";
  document.title = texts.title;
  for (const element of document.querySelectorAll("[data-text]")) {
    element.textContent = texts[element.dataset.text];
  }
}

function report(kind) {
  const item = Office.context.mailbox.item;
  try {
    if (!item || !item.itemId) {
      throw new Error("no message is selected");
    }
    const subject = String(item.subject || "").slice(0, MAX_SUBJECT);
    const name = subject.replace(/[\\/:*?"<>|\u0000-\u001f]/g, " ").trim().slice(0, MAX_NAME) || "message";
    Office.context.mailbox.displayNewMessageForm({
      toRecipients: [address],
      subject: `${kind}|${subject}`,
      htmlBody: texts.body,
      attachments: [{ type: "item", name, itemId: item.itemId }],
    });
    status.textContent = texts.opened;
  } catch {
    status.textContent = `${texts.failed} ${address}.`;
  }
}

show(navigator.language);
for (const button of buttons) {
  button.addEventListener("click", () => report(button.dataset.kind));
}
if (typeof Office !== "undefined") {
  Office.onReady((info) => {
    if (info.host !== "Outlook") {
      return;
    }
    show(Office.context.displayLanguage);
    for (const button of buttons) {
      button.disabled = false;
    }
    status.textContent = texts.ready;
  });
}
