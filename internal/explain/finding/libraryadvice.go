package finding

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// A library is a well-known pool or client, and advice in the terms of its options, because a user cannot change its lines:
// a section of rules/libraries.txt, whose lines are the fields. An empty advice means that the rule's own advice applies.
type library struct {
	name         string
	version      string  // whose sources the names and defaults are from
	functions    string  // prefixes of its functions, separated by spaces
	poolAdvice   string  // how to enlarge its pool; with {n}, how to have n times as many slots
	slotNoun     string  // what a slot of its pool is; empty: a connection
	peerAdvice   string  // how to shorten waits for its peer
	answerAdvice string  // the same where each request asks its peer once; empty: peerAdvice
	seriesAdvice string  // the same where each request asks its peer several times in turn; empty: peerAdvice
	fanOutAdvice string  // how to run all {n} parts of a request's work at the same time
	batchCalls   string  // prefixes of the functions that send several things at once, separated by spaces; peerAdvice or lockAdvice is to use them
	server       string  // the kind of server that it is a client for
	pauseAdvice  string  // which options set its intended pauses; {length} is that of the first, {shorter} a better one
	retryAdvice  string  // the same for its pauses before it tries again what has failed
	retryFilter  string  // which options or functions decide whether it tries again after an error
	pauseLength  string  // how long that one is unless set
	burstOption  string  // which option sets how many requests a rate limiter admits at once
	rateOption   string  // which one sets its rate
	setUpAdvice  string  // how to do its set-up work once
	purpose      string  // how to serve requests in spite of computing that is slow on purpose
	lockAdvice   string  // how to avoid waits for its own lock
	repeatAdvice string  // the same where most waiters do what the holder does again
	shareAdvice  string  // how to avoid waits for a call of another request
	orderAdvice  string  // how to avoid waits for the answers to earlier calls, for other streams, or for other receivers
	stmtAdvice   string  // how to avoid a round trip that prepares each statement
	keepAdvice   string  // why it may not keep an entry
	drainAdvice  string  // how to avoid that requests do the work of others
	loopAdvice   string  // how to take work off its goroutine that serves all requests
	largeAdvice  string  // how to ask for less, where answers are large
	windowAdvice string  // how to let more of an answer through in each round trip
	tickAdvice   string  // how to have its peer send each answer at once that it sends at intervals
	lessAdvice   string  // how to compute less in it, where the work as such is needed
	inputNote    string  // what decides how long its work takes, if the service cannot
	costAdvice   string  // how to avoid its costly work
	costlyWork   string  // that work, as a predicate of "requests"
	left         float64 // the share of the costly work, or of the pauses, that remains with the advice
	leastShare   float64 // the share of slow requests' time that it must take; 0: threshold.MajorShare
	costlyCalls  string  // prefixes of functions that run only for that work, for set-up those that the service itself calls, separated by spaces; empty: any

	// The pool of a package of the standard library:
	slotFunc     string // the function in which a request waits for a slot
	slotWait     string // neverOpens, or ""
	poolName     string
	sizeAdvice   string // how to enlarge the pool, to users of the package itself
	reuseAdvice  string // how to keep connections open
	expiryAdvice string // the same where so few are in use at once that the pool keeps enough
	renewAdvice  string // the same where the service makes or closes pools in the time of the trace
	renewals     string // the functions that do that, separated by spaces
	unusedAdvice string // what to check if slots are held without use
	leakAdvice   string // what to check if no slot is released
}

// slotPhrase returns the phrase of key for a slot of the library's pool, of which there are n.
func (l *library) slotPhrase(key textKey, n int) string {
	return textOf(key, "n", n, "slot", cmp.Or(l.slotNoun, "connection"), "library", cmp.Or(l.poolName, l.name))
}

// fix returns advice in the terms of the library as the fix of a finding.
func (l *library) fix(advice string) string {
	return textOf("fix in-library", "library", l.name, "advice", advice)
}

// neverOpens is the slotWait of a pool where requests wait only for a slot, and never open a connection.
const neverOpens = "never opens a connection"

// permitSlot is the slotNoun of a library that limits how much it does at the same time, and guards nothing by that: as many permits do no
// harm as requests need at once.
const permitSlot = "permit"

// libraries are searched in order: a library comes before those that it uses.
var libraries = sync.OnceValue(func() (out []library) {
	_, sections := readSections("libraries")
	for _, s := range sections {
		l := library{name: s.Title}
		fields := map[string]*string{
			"version": &l.version, "functions": &l.functions, "pool": &l.poolAdvice, "slot": &l.slotNoun, "peer": &l.peerAdvice, "answer": &l.answerAdvice, "series": &l.seriesAdvice, "fan-out": &l.fanOutAdvice, "batches": &l.batchCalls, "pause": &l.pauseAdvice, "retry": &l.retryAdvice, "errors": &l.retryFilter, "pause length": &l.pauseLength, "server": &l.server, "burst": &l.burstOption, "rate": &l.rateOption, "set-up": &l.setUpAdvice, "purpose": &l.purpose, "lock": &l.lockAdvice, "repeated": &l.repeatAdvice, "share": &l.shareAdvice, "order": &l.orderAdvice, "prepare": &l.stmtAdvice, "keeps": &l.keepAdvice, "drain": &l.drainAdvice, "loop": &l.loopAdvice, "tick": &l.tickAdvice, "large": &l.largeAdvice, "window": &l.windowAdvice, "less": &l.lessAdvice, "input": &l.inputNote, "cost": &l.costAdvice, "work": &l.costlyWork, "costly": &l.costlyCalls, "slot function": &l.slotFunc,
			"slot wait": &l.slotWait, "pool name": &l.poolName, "size": &l.sizeAdvice, "reuse": &l.reuseAdvice, "expiry": &l.expiryAdvice, "renewed": &l.renewAdvice, "renewals": &l.renewals, "unused": &l.unusedAdvice, "leak": &l.leakAdvice,
		}
		for _, line := range strings.Split(strings.ReplaceAll(s.Text, "\n  ", " "), "\n") {
			name, value, _ := strings.Cut(line, ": ")
			switch name {
			case "left":
				l.left, _ = strconv.ParseFloat(value, 64)
			case "least share":
				l.leastShare, _ = strconv.ParseFloat(value, 64)
			default:
				*fields[name] = value
			}
		}
		out = append(out, l)
	}
	return out
})

// httpSlotFunc is the function in which a request waits for a connection of an http.Transport.
const httpSlotFunc = "net/http.(*Transport).getConn"

// stdPool returns the advice about the pool of the standard library, such as an http.Transport's connections, in which the
// function call waits for a slot. It has no texts if call does not wait for one.
func stdPool(call string) *library {
	if l := firstMatch(libraries(), func(l *library) bool { return call != "" && l.slotFunc == call }); l != nil {
		return l
	}
	return &library{}
}

// isStdPool reports whether a call waits for a slot of a pool of the standard library.
func isStdPool(call string) bool { return stdPool(call).poolName != "" }

// libraryAt returns the first known library that contains one of the sites, or that the service called at one; nil if there is
// none.
func libraryAt(sites ...*report.Site) *library {
	return firstMatch(libraries(), func(l *library) bool { return hasFunction(sites, l.functions) })
}

// adviserAt returns the first of those libraries that has some advice; nil if there is none.
func adviserAt(advice func(*library) string, sites ...*report.Site) *library {
	return firstMatch(libraries(), func(l *library) bool { return advice(l) != "" && hasFunction(sites, l.functions) })
}

// hasFunction reports whether, for one of the sites, its function or the function that the service called there begins with one
// of the prefixes, which are separated by spaces.
func hasFunction(sites []*report.Site, prefixes string) bool {
	for p := range strings.FieldsSeq(prefixes) {
		if slices.ContainsFunc(sites, func(s *report.Site) bool {
			return s != nil && (strings.HasPrefix(s.Func, p) || s.CalledFrom != nil && strings.HasPrefix(s.CalledFrom.Calls, p))
		}) {
			return true
		}
	}
	return false
}

// adviceForPause returns the advice on the library's intended pauses, their length if a user follows it (0 if their default length
// is not known), and the present one, as text. seenNS is their mean length in the trace, 0 if that is not known. isShort means that
// it is less than half of the default, as the service's authors chose. Pauses before something is tried again grow, so longer ones
// show no choice.
func (l *library) adviceForPause(seenNS int64) (advice string, shorter time.Duration, present string, isShort bool) {
	length, present := textOf("phrase pause-unless-set", "time", l.pauseLength), l.pauseLength
	shorter = l.shorterPause()
	if unlessSet, err := time.ParseDuration(l.pauseLength); err == nil && seenNS > 0 {
		isShort = 2*seenNS < int64(unlessSet)
		switch {
		case isShort:
			present = words.Rough(seenNS)
			length = textOf("phrase pause-with-default", "time", present, "default", l.pauseLength)
			shorter = max(minPause, time.Duration(seenNS/10).Round(time.Millisecond))
		case l.retryAdvice == "" && seenNS > 2*int64(unlessSet):
			// Work that comes later waits for the rest of a pause only, so the mean is less than its length.
			present = textOf("phrase pause-over", "time", words.Rough(seenNS))
			length = textOf("phrase pause-with-default", "time", present, "default", l.pauseLength)
		}
	}
	return strings.NewReplacer("{length}", length, "{shorter}", words.Brief(int64(shorter))).Replace(cmp.Or(l.retryAdvice, l.pauseAdvice)), shorter, present, isShort
}

// An advised pause is a hundredth of the library's own, and at least as long as the kernel's timers are accurate.
const (
	pauseReduction = 100
	minPause       = time.Millisecond
)

// shorterPause returns the length of the library's intended pauses if a user follows the advice; 0 if the default is not known.
func (l *library) shorterPause() time.Duration {
	length, err := time.ParseDuration(l.pauseLength)
	if err != nil {
		return 0
	}
	return max(length/pauseReduction, minPause)
}

// libraryOfFunc returns the library that contains the function of a site, whatever the service called; nil if none is known.
func libraryOfFunc(s *report.Site) *library {
	if s == nil {
		return nil
	}
	return libraryAt(&report.Site{Func: s.Func})
}

// libraryOfRoute returns the library in which a route waits; nil if none is known.
func libraryOfRoute(p *causeRoute) *library { return libraryAt(p.sites()...) }

// pausingLibrary returns the library whose timer a route waits for: the one of the call that shows its purpose, else that of the route.
func pausingLibrary(p *causeRoute) *library {
	if l := libraryOfFunc(&report.Site{Func: p.Call}); l != nil && l.pauseAdvice != "" {
		return l
	}
	return libraryOfRoute(p)
}

// peerAdviceOf returns the library in which a route waits for a peer, if it has advice that the caller does not follow already.
func peerAdviceOf(p *causeRoute) *library {
	if l := libraryOfRoute(p); l != nil && l.peerAdvice != "" && !hasFunction(p.sites(), l.batchCalls) {
		return l
	}
	return nil
}

// seriesAdviceOf returns the same for requests that ask the peer several times in turn. The library that the service calls, as for
// objects in a database, may know better than the one that it uses.
func seriesAdviceOf(p *causeRoute) *library {
	if l := adviserAt(func(l *library) string { return l.seriesAdvice }, p.sites()...); l != nil && !hasFunction(p.sites(), l.batchCalls) {
		return l
	}
	return peerAdviceOf(p)
}

// sites returns the site of a route's cause, then those of its waits from the request's own to the last one. Each may be nil.
func (p *causeRoute) sites() []*report.Site {
	sites := []*report.Site{p.Site}
	for i := range p.via {
		sites = append(sites, p.via[i].Site)
	}
	return sites
}

// sharingLibrary returns the library, such as a single-flight group, that makes requests of a candidate wait for a call that
// another request began. It returns nil if such waits are less than threshold.MajorShare of the candidate's time.
func (c *candidate) sharingLibrary() (sharing *library) {
	var sharedNS, totalNS int64
	byFunc := map[string]*library{} // hundreds of routes wait in few functions
	for route := range each(c.routes) {
		totalNS += route.routeNS
		for k := range route.via {
			site := cmp.Or(route.via[k].Site, &report.Site{})
			if l := entry.GetOrMake(byFunc, site.Func, func() *library { return libraryOfFunc(site) }); l != nil && l.shareAdvice != "" {
				sharing, sharedNS = l, sharedNS+route.routeNS
				break
			}
		}
	}
	if float64(sharedNS) < threshold.MajorShare*float64(totalNS) {
		return nil
	}
	return sharing
}
