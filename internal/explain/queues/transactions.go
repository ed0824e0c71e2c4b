package queues

import (
	"cmp"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A database that is locked wakes no waiter: a client library sleeps and tries again. The holder is a transaction. Package
// database/sql starts a goroutine for each transaction that ends when the transaction does, so the trace shows from when to
// when transactions were open, and which line began them. A transaction that waits for the lock itself does not hold it.

// A transaction is the time in which one was open.
type transaction struct {
	owner      uint64 // the goroutine that began it
	start, end int64
	stack      tracefmt.StackID // of its begin
}

// A lockedKey identifies waits for a locked database at one site, and a site where transactions begin that were open
// during the waits; 0 for all waits.
type lockedKey struct{ wait, begin tracefmt.FrameID }

// A lockedSum adds up waits for a locked database, or the part of them during which transactions of one site were open.
type lockedSum struct {
	ns     int64
	workNS map[transactionWork]int64 // what the transactions' goroutines waited for in that time
}

// A transactionWork is the site of a wait, and the line below it in the function that began the transaction; 0 if it has none.
type transactionWork struct{ site, line tracefmt.FrameID }

func (s *lockedSum) plus(addend *lockedSum) *lockedSum {
	if s == nil {
		return addend
	}
	s.ns += addend.ns
	addSums(s.workNS, addend.workNS, func(a, b int64) int64 { return a + b })
	return s
}

// addLockedWaits records for which transactions a request waited in sleeps that end when a database is no longer locked.
func (p *workerSum) addLockedWaits(w *path.WalkResult) {
	for i := range w.Steps {
		step := &w.Steps[i]
		if step.Kind != critpath.Sleep || !p.stage.Sites.HasRole(step.Stack, knowledge.DatabaseLock) {
			continue
		}
		site := p.stage.Sites.SiteOf(step.Stack)
		p.locked(lockedKey{wait: site}).ns += (step.End - step.Start) * w.Weight
		for _, tx := range p.openTransactions() {
			if from, to := max(step.Start, tx.start), min(step.End, tx.end); from < to && tx.owner != step.G {
				p.addTransactionWork(p.locked(lockedKey{site, p.stage.Sites.SiteOf(tx.stack)}), &tx, from, to, w.Weight)
			}
		}
	}
}

// addTransactionWork adds what the goroutine of a transaction did in [from, to), unless it waited for the same lock.
func (p *workerSum) addTransactionWork(sum *lockedSum, tx *transaction, from, to, weight int64) {
	p.spans = p.stage.Win.Spans(tx.owner, from, to, p.spans[:0])
	for i := range p.spans {
		span := &p.spans[i]
		ns := (min(span.End, to) - max(span.Start, from)) * weight
		if span.State == timeline.Waiting && p.stage.Sites.HasRole(span.Stack, knowledge.DatabaseLock) {
			continue
		}
		sum.ns += ns
		if span.State == timeline.Waiting || span.State == timeline.Syscall {
			sum.workNS[transactionWork{p.stage.Sites.SiteOf(span.Stack), p.divergingPosition(tx.stack, span.Stack).line}] += ns
		}
	}
}

// locked returns the sum of a key.
func (p *workerSum) locked(key lockedKey) *lockedSum {
	sum := p.lockedWaits[key]
	if sum == nil {
		sum = &lockedSum{workNS: make(map[transactionWork]int64)}
		p.lockedWaits[key] = sum
	}
	return sum
}

// openTransactions returns the transactions that began in the window.
func (p *workerSum) openTransactions() []transaction {
	if p.hasTransactions {
		return p.transactions
	}
	p.hasTransactions, p.transactions = true, p.transactions[:0]
	isTransaction := func(start tracefmt.StackID) bool { return p.stage.Sites.HasRole(start, knowledge.Transaction) }
	var births []timeline.Birth
	for _, g := range p.stage.Win.Gens {
		births = g.Births(isTransaction, births)
	}
	timeline.SortBirths(births)
	for _, b := range births {
		end, hasEnded := p.stage.Win.Death(b.G, b.Time)
		if !hasEnded {
			end = p.stage.Win.Gens[len(p.stage.Win.Gens)-1].End
		}
		p.transactions = append(p.transactions, transaction{b.Creator, b.Time, end, b.Stack})
	}
	return p.transactions
}

// A LockedWait describes waits for a locked database at one line, in the slices of time that were sampled.
type LockedWait struct {
	Site *report.Site
	// Begin is where the transactions begin that were open for most of that time, Share the part of the time.
	Begin *report.Site
	Share float64
	// Work is where these transactions waited most in that time, WorkShare the part of it, and Line the line in the function
	// of Begin below which that is; nil if none is.
	Work, Line *report.Site
	WorkShare  float64
}

// LockedWaits returns the waits for locked databases, each with the transactions that were open for most of the time. Merge
// must have been called.
func (s *Sum) LockedWaits(sp *spell.Speller) (out []LockedWait) {
	sums := s.workers[0].lockedWaits
	for key, all := range sums {
		if key.begin != 0 {
			continue
		}
		longest := lockedKey{}
		for other, sum := range sums {
			if other.wait != key.wait || other.begin == 0 || sum.ns == 0 {
				continue
			}
			if longest.begin == 0 || cmp.Or(cmp.Compare(sum.ns, sums[longest].ns), sp.CompareFrames(longest.begin, other.begin)) > 0 {
				longest = other
			}
		}
		if longest.begin == 0 {
			continue
		}
		sum := sums[longest]
		wait := LockedWait{Site: sp.Site(key.wait), Begin: sp.Site(longest.begin), Share: min(1, float64(sum.ns)/float64(all.ns))}
		for _, work := range slices.SortedFunc(maps.Keys(sum.workNS), func(a, b transactionWork) int {
			return cmp.Or(sp.CompareFrames(a.site, b.site), sp.CompareFrames(a.line, b.line))
		}) {
			if share := float64(sum.workNS[work]) / float64(sum.ns); share > wait.WorkShare {
				wait.Work, wait.Line, wait.WorkShare = sp.Site(work.site), sp.Site(work.line), share
			}
		}
		out = append(out, wait)
	}
	slices.SortFunc(out, func(a, b LockedWait) int { return a.Site.Compare(b.Site) })
	return out
}
