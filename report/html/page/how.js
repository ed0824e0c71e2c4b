// Explanations of how every number on the page was computed.

import { h } from './dom.js';

export const how = {
  verdict: ['The verdict', 'Of the groups with the most total latency, the slow requests: band p99-max where it holds at least 10, else p90-99 where that does, else all; outliers where they have at least half of all requests’ time, or a tenth and no part in those. Time is summed by cause first; its lines of code are its parts. A percentage is the cause’s share of all the time of these requests; the duration beside it is that time per request.'],
  share: ['Share', 'Time of a cause divided by the time of all causes of the same requests. A request’s segments add up to its latency exactly, so the shares of a band add up to 100 %.'],
  finding: ['Findings', 'Rules look for known patterns in groups and in the whole trace. Findings are ordered by what their fix would win.'],
  predicted: ['Predicted gain', 'The graphs of the recorded requests are timed again with the cause made smaller; low and high are the ends of the interval. It is a prediction from this trace, not a measurement: measure again after the change.'],
  check: ['Natural variation', 'Requests of the prediction’s sample that met about as much of the cause as the change would leave. If those are too few: requests that met almost none, compared with the prediction without the cause. If the prediction is right, they already take the predicted time. Their median agrees if it is within the predicted range, plus a tenth of it or a fiftieth of the gain; a difference is reported only if chance does not explain it. They may be requests of another kind, so this is evidence and not part of the estimate.'],
  confidence: ['Confidence', 'How certain the rule is, 0 to 100 %, from the strength of its evidence.'],
  count: ['Requests', 'Requests that began and ended inside the trace. Requests cut by its start and requests still running at its end are counted separately.'],
  latency: ['Latency', 'From the instant at which the request could begin (the wake of its connection’s goroutine, the start of its task, ...) to its end, by the trace’s clock. Percentiles are by nearest rank from buckets 0.4 % wide; a percentile of too few requests is not shown (–).'],
  bands: ['Bands', 'Requests by latency: p50-90 are those slower than half and faster than a tenth of all, and so on. Limits are exact to 3 %, the width of a bucket. Outliers are far slower than usual: by more than 10 ms, and more than four times as slow as three quarters of the others or, among a thousand or more, as 99 of a hundred. The other bands contain them, too.'],
  histogram: ['Distribution', 'Every request is in a bucket by its latency, 32 buckets per doubling (joined where they would be too narrow to see). A bar’s height is the number of requests; its parts are the shares of causes in these requests’ time. The line is the empirical distribution function: the share of requests that were at most this slow.'],
  mix: ['Causes by latency', 'For each bucket of latency, the causes of its requests’ time, as shares of 100 %. Where the colours change towards the right, slow requests have another cause than fast ones.'],
  segments: ['The waterfall', 'The critical path of one request, walked backwards from its end: where its goroutine waited for another one, the path continues there, but never before the wait began. Every instant of the request is in exactly one segment. Thin bars are what the goroutines did; thick ones are the path.'],
  wakes: ['Arrows', 'The goroutine at the arrow’s start made the one at its tip runnable (or created it) at that time. Strong arrows are on the critical path.'],
  typical: ['Typical request', 'A few requests are chosen by a hash of their start and goroutine, so independently of their latency; this is the one closest to the group’s median.'],
  flame: ['Flame graph', 'Time on critical paths, per request of the band: from the top, the waits that led from the request to the goroutine that spent the time (with the place of each wait), then the cause, and below it the code: the service’s own line, and the function that it called. A search says how much of the time its boxes have, each once. A sandwich shows one function: who leads to it above, what lies below it underneath. Widths are exact; the order is by size.'],
  compare: ['Comparison', 'Colours show how much more (warm, +) or less (cold, −) time per request a box has than the same box of the other band, or of the same band of the other report. Groups of two reports are matched by their ids. This page reads the other report from disk; nothing is sent.'],
  blocks: ['Over time', 'Requests by the interval of the trace in which they ended. Percentiles of an interval come from its histogram and are exact to 3 %.'],
  goroutines: ['Goroutines over time', 'The mean number of goroutines in each state during a step of time: running on a P, in a system call, or ready to run with no P free for them. Where running and ready together rise above the line of GOMAXPROCS, goroutines wait for a CPU. Long traces have longer steps.'],
  freezes: ['Freezes', 'Intervals in which the kernel stopped all threads because the period’s CPU quota was used up. In a bare trace they are inferred: they end in step with the period.'],
  host: ['The host', 'The kernel’s counters of the process, read during the recording and aligned with the trace’s clock. Counters are differences between the first and the last sample.'],
  lost: ['Lost time', 'Time for which threads wanted to run and could not, in thread time: two threads stopped for 50 ms are 100 ms. The quota’s part is the kernel’s throttled time; the run queue’s part is the wait for a CPU without a quota. The rest is goroutines’ running time by the trace, less threads’ running time by the kernel and less both parts: a lower bound.'],
  network: ['Network or us', 'Segments that the kernel retransmitted on the process’s sockets, and whether slow requests waited for the network at that time. If nothing was lost, the network is cleared: the other side, or this process, made them wait.'],
  gc: ['Garbage collection', 'Cycles that began in the trace; the time spent marking; the largest heap and goal that the trace reports.'],
  whatif: ['What if', 'Predictions requested with --what-if, made in the same way as those of findings.'],
  stw: ['Stops of the world', 'Intervals in which all goroutines were stopped, by reason, from begin to end event.'],
  idle: ['Idle P', 'The share of time in which at least one P had nothing to run. Waiting to run in that time is the thread’s wake-up latency, not lack of CPU.'],
  throttle: ['Throttling', 'From the cgroup’s counters if they were recorded, else from intervals in which all threads fell silent and whose ends keep to the quota’s period.'],
  ready: ['Ready to run', 'From the instant at which a request could begin to the first instruction of its goroutine. A lower bound where the network was polled late; the poll gap is the largest possible error.'],
  open: ['Open requests', 'Requests still running at the end of the trace: their latency is at least the one shown.'],
};

// explainButton returns the button next to a number that opens its explanation.
export function explainButton(key) {
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
