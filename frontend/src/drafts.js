// Unsent text, model and skill of each session, kept in this browser until they are sent.

const PREFIX = "parley.draft.v1.";
const MAX_AGE_MS = 30 * 24 * 3600 * 1000;
const MOST = 100;

export const draftKey = (session) => PREFIX + (session || "new");

function all() {
  const found = [];
  for (let index = 0; index < localStorage.length; index += 1) {
    const key = localStorage.key(index);
    if (!key.startsWith(PREFIX)) continue;
    let at = 0;
    try {
      at = Number(JSON.parse(localStorage.getItem(key)).at) || 0;
    } catch {
      // Unreadable: as old as can be.
    }
    found.push({ key, at });
  }
  return found.sort((a, b) => b.at - a.at);
}

/** Forget drafts that are old or too many; nothing here is ever needed to work. */
export function pruneDrafts(keep = MOST) {
  try {
    all().forEach(({ key, at }, index) => {
      if (index >= keep || Date.now() - at > MAX_AGE_MS) localStorage.removeItem(key);
    });
  } catch {
    // No storage.
  }
}

export function parseDraft(json) {
  try {
    const draft = JSON.parse(json);
    return draft && typeof draft.text === "string" ? draft : null;
  } catch {
    return null;
  }
}

export function readDraft(session) {
  try {
    return parseDraft(localStorage.getItem(draftKey(session)));
  } catch {
    return null;
  }
}

export function writeDraft(session, draft) {
  const store = () => localStorage.setItem(draftKey(session), JSON.stringify({ ...draft, at: Date.now() }));
  try {
    store();
  } catch {
    pruneDrafts(10);
    try {
      store();
    } catch {
      // Full or forbidden: the text lives as long as the page.
    }
  }
}

export function removeDraft(session) {
  try {
    localStorage.removeItem(draftKey(session));
  } catch {
    // No storage.
  }
}
