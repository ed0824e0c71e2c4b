package inspect

import (
	"sync"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/report"
)

// A waitTable numbers the waits that may be in a queue, from 1.
type waitTable struct {
	mu      sync.Mutex
	waits   []path.ChainWait
	numbers map[path.ChainWait]int
}

// number returns the number of a wait; a new wait gets the next one, from 1 on. It may be called concurrently.
func (t *waitTable) number(wait path.ChainWait) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, isNumbered := t.numbers[wait]
	if !isNumbered {
		if t.numbers == nil {
			t.numbers = map[path.ChainWait]int{}
		}
		t.waits = append(t.waits, wait)
		n = len(t.waits)
		t.numbers[wait] = n
	}
	return n
}

// queues returns, by the number of a wait, the queue of a group that the wait is for: nil if it is for none. The result is nil if the group has no
// queues.
func (t *waitTable) queues(group string, sp *spell.Speller) []*report.Queue {
	if len(sp.Queues[group]) == 0 {
		return nil
	}
	out := make([]*report.Queue, len(t.waits)+1)
	for i := range t.waits {
		out[i+1], _ = sp.QueueWait(group, t.waits[i:i+1])
	}
	return out
}

// waitNumbers caches, for one worker, the numbers of the chains' first waits for a hand-over.
type waitNumbers struct {
	shared  *waitTable
	numbers []int // by path.ChainID, plus 1
}

// ofChain returns the number of the first wait of a chain that another goroutine ends by a hand-over, after the last answer of this
// process itself; 0 if there is none.
func (w *waitNumbers) ofChain(ids *path.IDs, id path.ChainID) int {
	for int(id) >= len(w.numbers) {
		w.numbers = append(w.numbers, 0)
	}
	if w.numbers[id] == 0 {
		w.numbers[id] = 1
		for _, wait := range ids.Chain(id) {
			switch wait.Kind {
			case critpath.WaitPeer:
				w.numbers[id] = 1
			case critpath.WaitChan, critpath.WaitSend, critpath.WaitSelect, critpath.WaitCond:
				if w.numbers[id] == 1 {
					w.numbers[id] = 1 + w.shared.number(wait)
				}
			}
		}
	}
	return w.numbers[id] - 1
}
