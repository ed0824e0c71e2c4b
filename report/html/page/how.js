// How every number on the page was computed.

import { h } from './dom.js';

export const how = {
  verdict: ['The verdict', 'Of the groups with the most total latency, the slow requests: band p99-max where it holds at least 10, else p90-99 where that does, else all; outliers where they have at least half of all requests’ time, or a tenth and no part in those. Time is summed up by cause first; the lines of code behind it are its parts. A percentage is the cause’s share of all the time that these requests took together; the duration beside it is that time divided by the number of requests.'],
  share: ['Share', 'Time of a cause divided by the time of all causes of the same requests. A request’s segments add up to its latency exactly, so the shares of a band add up to 100 %.'],
  finding: ['Findings', 'Rules look for known patterns in groups and in the whole trace. They stand in order of what their fix would win.'],
  predicted: ['Predicted gain', 'The graphs of the recorded requests are timed again with the cause made smaller; low and high are the ends of the interval. It is a prediction from this trace, not a measurement: measure again after the change.'],
  check: ['Natural variation', 'Of the sample that the prediction is made from, the requests that met about as much of the cause as the change would leave; if those are too few, those that met next to none, and the prediction with the cause gone. If it is right, they already take what the group would. Their median agrees within the predicted range, a tenth of it or a fiftieth of what is won aside; that it differs is said only if chance does not explain it. They may be requests of another kind, so this is evidence and has no part in the estimate.'],
  confidence: ['Confidence', 'How sure the rule is, 0 to 100 %, from the strength of its evidence.'],
  count: ['Requests', 'Requests that began and ended inside the trace. Those cut by its start and those still open at its end are counted apart.'],
  latency: ['Latency', 'From the instant at which the request could begin (the wake of its connection’s goroutine, the start of its task, ...) to its end, by the trace’s clock. Percentiles are by nearest rank from buckets 0.4 % wide; one that too few requests support is not shown (–).'],
  bands: ['Bands', 'Requests by latency: p50-90 are those slower than half and faster than a tenth of all, and so on. Borders are exact to 3 %, the width of a bucket. Outliers are requests that were far slower than what is usual: by more than 10 ms, and more than four times as slow as three quarters of the others, or, of a thousand and more, as 99 of a hundred; the other bands hold them, too.'],
  histogram: ['Distribution', 'Every request falls into a bucket by its latency, 32 buckets to each doubling (joined where they would be too narrow to see). A bar’s height is the number of requests; its parts are in proportion to the causes of the time that exactly these requests took. The line is the empirical distribution function: the share of requests that were at most so slow.'],
  mix: ['Causes by latency', 'For each bucket of latency, the causes of the time of its requests, as shares that fill 100 %. Where the colours change towards the right, slow requests are slow for another reason than fast ones.'],
  segments: ['The waterfall', 'The critical path of one request, walked backwards from its end: where its goroutine waited for another one, the path goes on there, but never before the wait began. Every instant of the request is in exactly one segment. Thin bars are what the goroutines did; thick ones are the path.'],
  wakes: ['Arrows', 'At its time, the goroutine where the arrow begins made the one at its tip runnable (or created it). Strong arrows are on the critical path.'],
  typical: ['Typical request', 'Of a few requests that were chosen by a hash of their start and goroutine, and so independent of their latency, the one whose latency is nearest to the group’s median.'],
  flame: ['Flame graph', 'Time on critical paths, per request of the band: from the top, the waits that led from the request to the goroutine that spent the time (with the place of each wait), then the cause, and below it the code: the service’s own line, and the function that it called. A search says how much of the time its boxes have, each once. A sandwich shows one function: who leads to it above, what lies below it underneath. Widths are exact; the order is by size.'],
  compare: ['Comparison', 'Colours show how much more (warm, +) or less (cold, −) time per request a box has than the same box of the other band, or of the same band of the other report. Groups of two reports belong together by their ids. The other report is read from disk by this page alone.'],
  blocks: ['Over time', 'Requests by the interval of the trace in which they ended. Percentiles of an interval come from its histogram and are exact to 3 %.'],
  goroutines: ['Goroutines over time', 'The mean number of goroutines in each state during a step of time: running on a P, in a system call, or ready to run with no P free for them. Where those running and those ready together rise above the line of GOMAXPROCS, goroutines wait for a CPU. In long traces steps are longer.'],
  freezes: ['Freezes', 'Intervals in which all threads were held back because the period’s CPU quota was used up, from a bare trace by likelihood: they end in step with the period.'],
  host: ['The host', 'The kernel’s counters of the process, read while the trace was recorded and brought onto its clock. Counters are differences between the first and the last sample.'],
  lost: ['Lost time', 'Time for which threads wanted to run and did not, in thread time: two threads that stand still for 50 ms are 100 ms. The quota’s part is the kernel’s throttled time, the run queue’s what threads waited for a CPU without it; the rest is how long goroutines ran by the trace, less how long threads ran by the kernel and less both: a lower bound.'],
  network: ['Network or us', 'Segments that the kernel sent again on the process’s sockets, and whether slow requests waited for the network meanwhile. Nothing lost clears the network: then the other side, or this process, let them wait.'],
  gc: ['Garbage collection', 'Cycles that began in the trace; the time with a mark phase under way; the largest heap and goal that the trace reports.'],
  whatif: ['What if', 'Predictions that were asked for with --what-if, made in the same way as those of findings.'],
  stw: ['Stops of the world', 'Intervals in which all goroutines were stopped, by reason, from begin to end event.'],
  idle: ['Idle P', 'The share of time in which at least one P had nothing to run. Waiting to run during such time is the thread’s wake-up latency, not lack of CPU.'],
  throttle: ['Throttling', 'From the cgroup’s counters if they were recorded, else from intervals in which all threads fell silent and that end in step with the quota’s period.'],
  ready: ['Ready to run', 'From the instant at which a request could begin to the first instruction of its goroutine. A lower bound where the network was polled late; the poll gap is the most that may be missing.'],
  open: ['Open requests', 'Requests that had begun and not ended when the trace did: their latency is at least what is shown.'],
};

// asked is the sign beside a number that opens its explanation.
export function asked(key) {
  const [title] = how[key];
  return h('button', { class: 'how', type: 'button', 'aria-label': `How was this computed: ${title}`, 'data-how': key, onclick: ev => show(ev.currentTarget, key) }, '?');
}

let box = null;

function show(button, key) {
  const [title, text] = how[key];
  if (box) box.remove();
  box = h('div', { class: 'howbox', popover: 'auto', role: 'dialog', 'aria-label': title }, h('strong', null, title), h('p', null, text));
  document.body.append(box);
  const at = button.getBoundingClientRect();
  box.showPopover();
  box.style.left = Math.max(8, Math.min(at.left, document.documentElement.clientWidth - box.offsetWidth - 8)) + 'px';
  const below = at.bottom + 6;
  box.style.top = (below + box.offsetHeight > window.innerHeight ? Math.max(8, at.top - box.offsetHeight - 6) : below) + 'px';
}
