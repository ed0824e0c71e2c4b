package threadstate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/capture/kernelevents"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// names has the names of threads' processes, and of what threads sleep in.
type names struct {
	tables  *kernelevents.Tables
	threads map[int32]*kernelevents.Thread // by number on the host
	pids    map[string]map[int32]bool      // by name of a process, the processes with that name
	peers   map[string]map[int32]bool      // the same for peers
	queues  []string                       // work queues of the kernel's workers, ordered
	cgroups map[uint64]*kernelevents.Cgroup
	ownName string // container of the own process
	// name by thread, of those that were interned
	texts  map[int32]tracefmt.StringID
	sleeps map[sleepKey]tracefmt.StringID
}

type sleepKey struct {
	call, stack int32
}

// init indexes the recording's tables of threads and control groups.
func (n *names) init(tables *kernelevents.Tables) {
	*n = names{
		tables: tables, threads: map[int32]*kernelevents.Thread{}, pids: map[string]map[int32]bool{}, peers: map[string]map[int32]bool{}, cgroups: map[uint64]*kernelevents.Cgroup{},
		texts: map[int32]tracefmt.StringID{0: 0, -1: 0}, sleeps: map[sleepKey]tracefmt.StringID{},
	}
	for i := range tables.Cgroups {
		n.cgroups[tables.Cgroups[i].ID] = &tables.Cgroups[i]
	}
	for i := range tables.Threads {
		th := &tables.Threads[i]
		n.threads[th.TID] = th
		addPID(n.pids, th)
		if queue := workQueueName(th); queue != "" {
			n.queues = append(n.queues, queue)
		}
		if th.IsPeer {
			addPID(n.peers, th)
		}
		if c := n.cgroups[th.Cgroup]; th.Own && c != nil {
			n.ownName = cmp.Or(n.ownName, c.Container)
		}
	}
	slices.Sort(n.queues)
	n.queues = slices.Compact(n.queues)
}

// addPID adds the process of a thread to those of its name.
func addPID(pids map[string]map[int32]bool, th *kernelevents.Thread) {
	name := processName(th)
	if pids[name] == nil {
		pids[name] = map[int32]bool{}
	}
	pids[name][th.PID] = true
}

// processName returns the name of a thread's process. A kernel worker's name is cut at the slash, so that kworker/1:2 and
// kworker/0:1 are the same.
func processName(th *kernelevents.Thread) string {
	name := cmp.Or(th.Process, th.Comm)
	if kind, _, ok := strings.Cut(name, "/"); ok && kind != "" {
		return kind
	}
	return name
}

// kernelWork has, for the beginnings of kernel threads' names, what these work for. That of a kworker is its work queues.
var kernelWork = []struct{ name, work string }{
	{"kworker/", "work queues of the kernel"},
	{"ksoftirqd/", "network packets and timers"},
	{"irq/", "interrupts of devices"},
	{"napi/", "network packets"},
	{"rcu_", "freeing the kernel's memory"},
	{"migration/", "moving threads between CPUs"},
	{"kswapd", "freeing memory"},
	{"kcompactd", "compacting memory"},
	{"khugepaged", "huge pages"},
	{"jbd2/", "the journal of a file system"},
}

// maxQueues is how many work queues a name has.
const maxQueues = 3

// kernelThreadText returns the name of a thread of the kernel with what it works for; "" for other threads.
func (n *names) kernelThreadText(th *kernelevents.Thread) string {
	for _, k := range kernelWork {
		if th.TID != th.PID || !strings.HasPrefix(cmp.Or(th.Process, th.Comm), k.name) {
			continue
		}
		work := k.work
		if workQueueName(th) != "" {
			work += ": " + strings.Join(n.queues[:min(len(n.queues), maxQueues)], ", ")
			if len(n.queues) > maxQueues {
				work += " ..."
			}
		}
		return report.KernelThread + processName(th) + " (" + work + ")"
	}
	return ""
}

// workQueueName returns the work queue that a worker of the kernel served when its name was read, as in kworker/0:1H-kblockd; ""
// if its name has none.
func workQueueName(th *kernelevents.Thread) string {
	if i := strings.IndexAny(th.Process, "-+"); i >= 0 && strings.HasPrefix(th.Process, "kworker/") {
		return th.Process[i+1:]
	}
	return ""
}

// internProcess adds the name of a thread's process to the symbols, once.
func (n *names) internProcess(syms *tracefmt.Symbols, tid int32) {
	if _, ok := n.texts[tid]; !ok {
		n.texts[tid] = syms.Intern(n.processText(tid))
	}
}

// processText returns the name of a thread's process with its pid and container. Processes of the same name, such as those of a
// build, are one load: the text has their number instead of a pid.
func (n *names) processText(tid int32) string {
	th := n.threads[tid]
	if th == nil {
		return fmt.Sprintf("thread %d", tid)
	}
	if th.Own {
		return report.OwnThreads
	}
	return cmp.Or(n.kernelThreadText(th), n.processTextOf(th, n.pids))
}

// processTextOf returns the name of a thread's process; pidsByName has the processes of each name.
func (n *names) processTextOf(th *kernelevents.Thread, pidsByName map[string]map[int32]bool) string {
	name := processName(th)
	text := name
	if count := len(pidsByName[name]); count > 1 {
		text = fmt.Sprintf("%s (%d processes)", name, count)
	} else if th.PID > 0 {
		text = fmt.Sprintf("%s (pid %d)", name, th.PID)
	}
	if c := n.cgroups[th.Cgroup]; c != nil && c.Container != "" && c.Container != n.ownName {
		text = strings.TrimSuffix(text, ")")
		if text == name {
			return fmt.Sprintf("%s (container %s)", text, c.Container)
		}
		return fmt.Sprintf("%s, container %s)", text, c.Container)
	}
	return text
}

// internSleep returns the name of what a thread sleeps in: the system call in state, or for a page fault the kernel function on
// the stack; 0 if neither is known. isFault reports that it is in no system call, and that the stack shows no other reason.
func (n *names) internSleep(syms *tracefmt.Symbols, state kernelevents.State, stack int32) (name tracefmt.StringID, isFault bool) {
	call, inCall := state.Call()
	if !inCall {
		call = -1
	}
	key := sleepKey{call, stack}
	frames := n.frames(stack)
	isFault = !inCall && (len(frames) == 0 || slices.ContainsFunc(frames, isFaultFunction))
	if id, ok := n.sleeps[key]; ok {
		return id, isFault
	}
	text := n.tables.Calls[call]
	if !inCall || text == "" {
		text = sleepFunction(frames)
	}
	id := tracefmt.StringID(0)
	if text != "" {
		id = syms.Intern(text)
	}
	n.sleeps[key] = id
	return id, isFault
}

// frames returns the function names of a kernel stack; nil if there is none.
func (n *names) frames(stack int32) []string {
	if stack < 1 || int(stack) > len(n.tables.Stacks) {
		return nil
	}
	return n.tables.Stacks[stack-1].Frames
}

// isFaultFunction reports whether a kernel function handles page faults, such as filemap_fault, do_swap_page, handle_mm_fault.
func isFaultFunction(fn string) bool {
	return strings.Contains(fn, "fault") || strings.HasPrefix(fn, "do_swap_page")
}

// sleepFunction returns the kernel function that shows best why a thread sleeps: the innermost one that handles a page fault,
// otherwise the innermost one outside of the scheduler, or "".
func sleepFunction(frames []string) string {
	if i := slices.IndexFunc(frames, isFaultFunction); i >= 0 {
		return frames[i]
	}
	for _, fn := range frames {
		if !strings.Contains(fn, "schedule") {
			return fn
		}
	}
	return ""
}
