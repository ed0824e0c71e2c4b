package queues

import (
	"cmp"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/entry"
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

// A transaction is a database transaction of database/sql, from its begin to its end.
type transaction struct {
	owner      uint64 // the goroutine that began it
	start, end int64
	stack      tracefmt.StackID // of the line that began it
}

// A lockedKey identifies waits for a locked database at one site, divided by the site that began the transactions that were
// open during the wait. begin is 0 for the sum of all waits at the site.
type lockedKey struct{ wait, begin tracefmt.FrameID }

// A lockedSum adds up waits for a locked database, or the part of them during which transactions of one site were open.
type lockedSum struct {
	ns     int64
	workNS map[transactionWork]int64 // what the transactions' goroutines waited for in that time, in ns
}

// A transactionWork is the site of a wait, and the line below it in the function that began the transaction; 0 if it has none.
type transactionWork struct{ site, line tracefmt.FrameID }

// add adds another sum of the same key.
func (s *lockedSum) add(addend *lockedSum) {
	s.ns += addend.ns
	addSums(&s.workNS, addend.workNS, plusNS)
}

// addLockedWaits records the sleeps on a request's path that end when a database is no longer locked, and the work of the
// transactions that other goroutines had open during them.
func (p *workerSum) addLockedWaits(w *path.WalkResult) {
	for step := range entry.Each(w.Steps) {
		if step.Kind != critpath.Sleep || !p.stage.Sites.HasRole(step.Stack, knowledge.DatabaseLock) {
			continue
		}
		site := p.stage.Sites.SiteOf(step.Stack)
		entry.GetOrAdd(p.lockedWaits, lockedKey{wait: site}).ns += (step.End - step.Start) * w.Weight
		for _, tx := range p.openTransactions() {
			if from, to := max(step.Start, tx.start), min(step.End, tx.end); from < to && tx.owner != step.G {
				p.addTransactionWork(entry.GetOrAdd(p.lockedWaits, lockedKey{site, p.stage.Sites.SiteOf(tx.stack)}), &tx, from, to, w.Weight)
			}
		}
	}
}

// addTransactionWork adds what the goroutine of a transaction did in [from, to), except its own waits for the locked database.
func (p *workerSum) addTransactionWork(sum *lockedSum, tx *transaction, from, to, weight int64) {
	p.spans = p.stage.Win.Spans(tx.owner, from, to, p.spans[:0])
	for span := range entry.Each(p.spans) {
		ns := (min(span.End, to) - max(span.Start, from)) * weight
		if span.State == timeline.Waiting && p.stage.Sites.HasRole(span.Stack, knowledge.DatabaseLock) {
			continue
		}
		sum.ns += ns
		if span.State == timeline.Waiting || span.State == timeline.Syscall {
			addToKey(&sum.workNS, transactionWork{p.stage.Sites.SiteOf(span.Stack), p.divergingPosition(tx.stack, span.Stack).line}, ns, plusNS)
		}
	}
}

// openTransactions returns the transactions that began in the window, in order of time, whether they have ended or not. The
// result is cached until the next generation.
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

// A LockedWait describes waits for a locked database at one line, in the sampled slices of the trace.
type LockedWait struct {
	Site *report.Site
	// Begin is the line that began the transactions that were open for most of the waiting time, Share their share of that
	// time.
	Begin *report.Site
	Share float64
	// Work is where these transactions waited most during that time, WorkShare its share of their time, and Line the line of
	// the function of Begin that leads to Work; nil if there is none.
	Work, Line *report.Site
	WorkShare  float64
}

// LockedWaits returns the waits for locked databases, one a source line, each with the transactions that were open for most of
// the time. Merge must have been called.
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
