// Follows the end of the page's scroller while the reader is there; otherwise offers a way back.
import { el, icon, setHidden } from "./dom.js";

const NEAR_PX = 64;

function scrollerOf(node) {
  let place = node.getRootNode().host ?? node.parentElement;
  for (; place; place = place.parentElement ?? place.getRootNode().host) {
    if (place.matches?.('[data-testid="stMain"]')) return place;
    const { overflowY } = getComputedStyle(place);
    if ((overflowY === "auto" || overflowY === "scroll") && place.scrollHeight > place.clientHeight + 1) return place;
  }
  return document.scrollingElement;
}

export class Follower {
  constructor(anchor, t, following = true) {
    this.anchor = anchor;
    this.following = following;
    this.lastTop = 0;
    this.button = el("button", { type: "button", class: "jump", hidden: true, onclick: () => this.jump() }, icon("down"), el("span", { textContent: t("jump") }));
    this.onScroll = () => this.#scrolled();
    this.onMove = (event) => {
      if (event.type === "wheel" ? event.deltaY < 0 : ["ArrowUp", "PageUp", "Home"].includes(event.key)) this.#leave();
    };
  }

  #attach() {
    const scroller = scrollerOf(this.anchor);
    if (scroller === this.scroller) return;
    this.detach();
    this.scroller = scroller;
    scroller.addEventListener("scroll", this.onScroll, { passive: true });
    scroller.addEventListener("wheel", this.onMove, { passive: true });
    scroller.addEventListener("keydown", this.onMove);
  }

  detach() {
    this.scroller?.removeEventListener("scroll", this.onScroll);
    this.scroller?.removeEventListener("wheel", this.onMove);
    this.scroller?.removeEventListener("keydown", this.onMove);
    this.scroller = null;
  }

  get #gap() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    return scrollHeight - scrollTop - clientHeight;
  }

  #leave() {
    if (this.scroller && this.scroller.scrollHeight > this.scroller.clientHeight + NEAR_PX) this.following = false;
  }

  #scrolled() {
    const top = this.scroller.scrollTop;
    if (this.#gap < NEAR_PX) this.following = true;
    else if (top < this.lastTop - 2) this.following = false;
    this.lastTop = top;
    this.#showButton();
  }

  /** After something was drawn: stay at the end if the reader was there. */
  follow() {
    this.#attach();
    if (this.following) {
      if (this.#gap > 1) this.scroller.scrollTop = this.scroller.scrollHeight;
      this.lastTop = this.scroller.scrollTop;
    }
    this.#showButton();
  }

  jump() {
    this.following = true;
    this.follow();
  }

  #showButton() {
    const away = !this.following && this.#gap > NEAR_PX;
    setHidden(this.button, !away);
    if (!away) return;
    const frame = this.scroller.getBoundingClientRect();
    const bottom = document.querySelector('[data-testid="stBottom"]')?.getBoundingClientRect();
    this.button.style.left = `${frame.left + this.scroller.clientWidth / 2}px`;
    this.button.style.bottom = `${window.innerHeight - (bottom?.top ?? Math.min(frame.bottom, window.innerHeight)) + 12}px`;
  }
}
