package finding

import (
	"cmp"

	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/report"
)

// A poolKind is the kind of slot that requests wait for, and how to get more of them.
type poolKind struct {
	name, nameWithoutSite, advice string
	unusedAdvice                  string // what else may keep its slots
	slotNoun                      string // what a slot of a library's pool is
	hasHolder                     bool   // requests hold the slot, and no goroutine or connection serves them
	isConnection                  bool   // a connection, which the pool of a library opens
	isSharedConnection            bool   // of a library outside the standard library, so holders that no wait shows may have more of them
	isSingleSlot                  bool   // its holder releases it, like a lock; it may guard data, which excludes more slots
}

// shortName returns the slot's name for texts that have named the pool already.
func (k *poolKind) shortName() string {
	if k.hasHolder {
		return textOf("phrase place")
	}
	return k.name
}

// poolKindOf returns the kind of a candidate's pool. If a library waits there, the kind is the library's, because its user cannot
// change the semaphore, Cond or channel on which the library builds its pool; else poolKindAtWait decides.
func poolKindOf(cand *candidate, top *causeRoute, service *queues.ServiceStats, slotWaits *queues.SlotWaits) poolKind {
	site := cand.wait.site.Site()
	if v := firstMatch(top.via, func(v *report.Via) bool { return waitKeyOf(v) == cand.wait }); v != nil && !isStdPool(cand.wait.call) {
		site = v.Site
		if l := libraryAt(v.Site); l != nil && l.poolAdvice != "" {
			if isHeldInBackground(slotWaits) || l.slotNoun == permitSlot {
				return connectionKind(l, l.poolAdvice, slotWaits)
			}
			kind := connectionKind(l, l.poolAdvice, nil)
			kind.isSharedConnection, kind.unusedAdvice = true, l.unusedAdvice
			return kind
		}
	}
	return poolKindAtWait(cand.wait, site, service, slotWaits)
}

// poolKindAtWait decides from a wait what its slots are: connections of the standard library, a semaphore's units, places that
// requests hold, or goroutines that serve. site is where they wait. service may be nil; slotWaits is nil if the slots are unknown.
func poolKindAtWait(wait waitKey, site *report.Site, service *queues.ServiceStats, slotWaits *queues.SlotWaits) poolKind {
	n, serverAdvice := 0, textOf("fix pool-more-goroutines")
	if slotWaits != nil {
		n = slotWaits.Slots
	}
	switch p := stdPool(wait.call); {
	case p.poolName != "":
		return connectionKind(p, p.sizeAdvice, slotWaits)
	case knowledge.Has(wait.site.Func, knowledge.Semaphore):
		kind := heldSlotKind(textOf("phrase semaphore"), textOf("fix pool-more-weight"))
		switch {
		case slotWaits != nil && slotWaits.WideHolder != nil:
		case isSemaphoreWait(wait) && n == 1:
			kind.name, kind.isSingleSlot = textOf("phrase only-place-of-semaphore"), true
		case isSemaphoreWait(wait) && n > 1:
			kind.name = textOf("phrase place-of-semaphore", "n", n)
		}
		kind.nameWithoutSite = kind.name
		return kind
	case n == 1:
		kind := heldSlotKind(textOf("phrase only-place"), textOf("fix pool-more-places"))
		kind.name, kind.isSingleSlot = textOf("phrase only-place-at", "site", site), isSlotPool(slotWaits)
		return kind
	case n > 1:
		kind := heldSlotKind(textOf("phrase one-place", "n", n), textOf("fix pool-more-places"))
		kind.name = textOf("phrase one-place-at", "n", n, "site", site)
		return kind
	case service != nil && service.OtherRequestShare > 0.5 || slotWaits != nil:
		return heldSlotKind(textOf("phrase place-held-by-requests"), textOf("fix pool-more-places"))
	case isUnevenlyDivided(service):
		return serverKind(textOf("phrase one-worker", "n", service.Workers), serverAdvice)
	case service != nil && service.MaxServers > 1 && service.Requests >= 5*service.MaxServers:
		return serverKind(textOf("phrase one-worker", "n", service.MaxServers), serverAdvice)
	case service != nil && service.MaxServers == 1:
		return serverKind(textOf("phrase only-worker"), serverAdvice)
	}
	return serverKind(textOf("phrase worker"), serverAdvice)
}

// connectionKind returns the kind of a connection (or stream) in a library's pool, with the number of connections if slotWaits has it.
func connectionKind(l *library, advice string, slotWaits *queues.SlotWaits) poolKind {
	key, n := textKey("phrase connection"), 0
	if slotWaits != nil {
		n = slotWaits.Slots
	}
	switch {
	case n == 1:
		key = "phrase only-connection"
	case n > 1:
		key = "phrase one-connection"
	}
	kind := serverKind(l.slotPhrase(key, n), advice)
	kind.isConnection, kind.slotNoun = true, cmp.Or(l.slotNoun, "connection")
	return kind
}

// isConnectionPool reports whether requests wait for a connection of a library's pool whose number of slots is known. isSlotPool
// does not recognise pools that do not serve waiters in order.
func isConnectionPool(slots *queues.SlotWaits, cand *candidate, top *causeRoute) bool {
	return slots != nil && slots.Waits >= threshold.SmallSample && slots.Slots > 0 && poolKindOf(cand, top, nil, nil).isConnection
}

// heldSlotKind returns the kind of a slot that a request holds: its name in sentences, and the sentence that advises to add
// slots.
func heldSlotKind(name, advice string) poolKind {
	return poolKind{name: name, nameWithoutSite: name, advice: advice, hasHolder: true}
}

// serverKind returns the kind of a goroutine or connection that serves requests: its name in sentences, and the sentence that
// advises to add servers.
func serverKind(name, advice string) poolKind {
	return poolKind{name: name, nameWithoutSite: name, advice: advice}
}
