// Where the page is scrolled to: the end, a linked message, or where the reader was while messages come above.
const MESSAGE = '[class*="st-key-user-"], [class*="st-key-agent-"]';
const MOVES = '.st-key-earlier, .st-key-later, [class*="st-key-previous-"], [class*="st-key-next-"]';
const KEEP_MS = 2500;
const LOOK_AGAIN_MS = [100, 300, 700, 1500];
const state = (globalThis[Symbol.for("parley.scrolling")] ??= { shown: "", ended: "", held: 0, place: 0, stop: null });

// Where on the screen the message of a click is: it shall be there again when the page has changed round it.
function noteClick(event) {
  const target = event.target.closest?.(MOVES);
  if (target) {
    const all = document.querySelectorAll(`.st-key-transcript :is(${MESSAGE})`);
    const message = target.matches(".st-key-earlier") ? all[0] : target.matches(".st-key-later") ? all[all.length - 1] : target.closest(MESSAGE);
    state.place = message?.getBoundingClientRect().top ?? 0;
  }
  // The same link again goes there again.
  if (event.target.closest?.('a[href*="message="]')) state.shown = "";
}

/** Do `place(main)` now and each time the page has grown, for a while or until the reader scrolls. */
function keepAt(place) {
  const main = document.querySelector('[data-testid="stMain"]');
  const content = document.querySelector('[data-testid="stMainBlockContainer"]');
  if (!main || !content) return;
  state.stop?.();
  const events = ["wheel", "touchstart", "keydown", "pointerdown"];
  // It is told after the layout, so reading places costs nothing more.
  const observer = new ResizeObserver(() => place(main));
  // What replaces something of its own size is not noticed: look again a few times.
  const timers = [...LOOK_AGAIN_MS.map((ms) => setTimeout(place, ms, main)), setTimeout(() => state.stop?.(), KEEP_MS)];
  state.stop = () => {
    observer.disconnect();
    timers.forEach(clearTimeout);
    for (const name of events) main.removeEventListener(name, state.stop);
    state.stop = null;
  };
  for (const name of events) main.addEventListener(name, state.stop, { passive: true });
  observer.observe(content);
}

/** Set off the words that were searched for in a message, without touching what the page drew; return the first place. */
function mark(message, words) {
  const wanted = words.toLowerCase();
  if (!wanted || !window.Highlight || !CSS.highlights) return null;
  const ranges = [];
  const walker = document.createTreeWalker(message, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node && ranges.length < 200; node = walker.nextNode()) {
    const text = node.data.toLowerCase();
    if (text.length !== node.data.length || !node.parentElement.closest('[data-testid="stMarkdownContainer"], pre') || node.parentElement.closest("button")) continue;
    for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length)) {
      const range = new Range();
      range.setStart(node, at);
      range.setEnd(node, at + wanted.length);
      ranges.push(range);
    }
  }
  if (ranges.length) CSS.highlights.set("parley-find", new Highlight(...ranges));
  return ranges[0] ?? null;
}

/** Bring a message into view: as a whole where it fits, else the words in it that were searched for, else its start. */
function show(main, id, words) {
  const message = document.querySelector(`[class*="-linked-${id}"]`);
  if (!message) return;
  const found = mark(message, words);
  const frame = main.getBoundingClientRect();
  const room = frame.height - (document.querySelector('[data-testid="stBottom"]')?.getBoundingClientRect().height ?? 0);
  const whole = message.getBoundingClientRect();
  const target = whole.height > room * 0.8 && found ? found.getBoundingClientRect() : whole;
  const above = target.height > room * 0.8 ? room * 0.08 : (room - target.height) / 2;
  main.scrollTop += target.top - frame.top - above;
}

function hold(main, id) {
  const message = document.querySelector(`.st-key-transcript :is(${MESSAGE})[class*="-${id}"]`);
  if (message) main.scrollTop += message.getBoundingClientRect().top - state.place;
}

const toTheEnd = (main) => {
  main.scrollTop = main.scrollHeight;
};

export default function ({ data }) {
  if (!state.listening) {
    state.listening = true;
    document.addEventListener("click", noteClick, true);
  }
  const { hold_count: held, scroll_to: to, end_of: end, find } = data;
  const isHeld = held > state.held;
  state.held = held;
  if (!to) globalThis.CSS?.highlights?.delete("parley-find");
  if (isHeld) keepAt((main) => hold(main, data.hold));
  else if (to && to !== state.shown) keepAt((main) => show(main, to, find));
  else if (!to && end && end !== state.ended) keepAt(toTheEnd);
  state.shown = to;
  state.ended = end;
  return () => {};
}
