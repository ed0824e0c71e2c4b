package finding

import (
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestLockHolder: the holder of a lock is where the path leads on from the lock. If it waits there for another goroutine, that
// goroutine's work is under no lock, and the advice is about the holder's wait.
func TestLockHolder(t *testing.T) {
	const lock, readLock = "lock report@16 sync.(*Mutex).Lock", "lock report@16 sync.(*RWMutex).RLock"
	inLibrary := &report.Site{Func: "example.org/db.(*conn).read", Line: 9, Module: "example.org/db", CalledFrom: &report.Caller{Func: "main.refresh", File: "/src/main.go", Line: 32}}
	for _, c := range []struct {
		name       string
		via        []report.Via
		site       *report.Site
		lines      []queues.HolderLine
		title, fix string
	}{
		{"the holder works itself", via(lock), site("work@27"), nil, "its holder sleeps at main.work (main.go:27)", "unlock the lock taken at main.go:16 before the pause at main.work"},
		{"in a helper's package", via(lock), site("kit.Get@101"), []queues.HolderLine{{WaitSite: site("report@16"), HolderSite: site("kit.Get@101"), Line: site("report@18"), Work: site("fetch@44")}},
			"its holder, at main.fetch (main.go:44), sleeps at kit.Get (main.go:101)", "unlock the lock taken at main.go:16 before the pause at main.report (main.go:18)"},
		{"a writer among readers", via(readLock), site("work@27"), []queues.HolderLine{{WaitSite: site("report@16"), HolderSite: site("work@27"), Line: site("refresh@32"), Work: site("work@27")}},
			"to read) behind the writer at main.refresh (main.go:32), which sleeps at main.work (main.go:27)", "do the work at main.refresh (main.go:32) without the lock, and lock only to put its result in place"},
		{"an unknown line of a writer", via(readLock), site("work@27"), nil, "to read) behind a writer that sleeps at main.work (main.go:27)", "do the work at main.work (main.go:27) without the lock"},
		{"it waits for a place", via(lock, "chan send refresh@32 runtime.chansend1"), site("work@27"), nil,
			"its holder, at main.refresh (main.go:32), waits for a place in a channel that another goroutine keeps, which sleeps at main.work (main.go:27)", "take a place in a channel at main.refresh (main.go:32) before"},
		{"it waits for a place behind other holders", via(lock, lock, "chan send refresh@32 runtime.chansend1"), site("work@27"), nil, "its holder, at main.refresh (main.go:32), waits for", "take a place"},
		{"it waits for a connection", via(lock, "select refresh@32 database/sql.(*DB).conn"), site("charge@95"), nil, "waits for a connection of a database/sql pool that", "take a connection of a database/sql pool at main.refresh"},
		{"it waits for a goroutine", via(lock, "chan refresh@32 runtime.chanrecv1"), site("work@27"), nil, "its holder, at main.refresh (main.go:32), waits for another goroutine, which sleeps", "do not wait at main.refresh (main.go:32) with the lock held"},
		{"a library's goroutine works for it", via(lock, "chan refresh@32 runtime.chanrecv1"), inLibrary, nil, "its holder sleeps at db.(*conn).read", "unlock the lock taken at main.go:16 before the pause at db.(*conn).read"},
	} {
		rep := oneGroup(report.Cause{Cause: "sleep", Call: "time.Sleep", Site: c.site, Via: c.via, TotalNS: ms(3000)})
		got := rulesByCode(report.RuleLockConvoy)[0].Run(&Input{Report: rep, HolderLines: c.lines})
		check.True(t, len(got) == 1 && strings.Contains(got[0].Title, c.title) && strings.HasPrefix(got[0].Fix, c.fix),
			"%s: %+v", c.name, got)
	}
}

// TestReaderAheadOfWriter: what is to be done without the lock is the call of the reader, not the line of the writer that waits for it.
func TestReaderAheadOfWriter(t *testing.T) {
	rep := oneGroup(report.Cause{Cause: report.CauseNetwork, Kind: "outbound", Call: "net.(*conn).Read", Site: site("send@81"), TotalNS: ms(3000),
		Via: via("lock lookup@36 sync.(*RWMutex).RLock", "lock change@45 sync.(*RWMutex).Lock")})
	got := rulesByCode(report.RuleLockConvoy)[0].Run(&Input{Report: rep, HolderLines: []queues.HolderLine{{WaitSite: site("lookup@36"), HolderSite: site("send@81"), Line: site("change@46")}}})
	check.True(t, len(got) == 1 && strings.HasPrefix(got[0].Fix, "copy what is needed under the lock, and do the call at main.send (main.go:81) after unlocking"), "%+v", got)
}

// TestWriterOfLibrary: a library's reader cannot unlock earlier, but the service can choose when it writes.
func TestWriterOfLibrary(t *testing.T) {
	call := func(fn string, line int) *report.Site {
		return &report.Site{Func: "example.org/model." + fn, Line: 9, Module: "example.org/model", CalledFrom: &report.Caller{Func: "main.use", File: "/src/main.go", Line: line, Calls: "example.org/model." + fn}}
	}
	waits := []report.Via{{Wait: report.WaitLock, Call: "sync.(*RWMutex).RLock", Site: call("Check", 64)}, {Wait: report.WaitLock, Call: "sync.(*RWMutex).Lock", Site: call("Train", 77)}}
	got := rulesByCode(report.RuleLockConvoy)[0].Run(&Input{Report: oneGroup(report.Cause{Cause: report.CauseCPU, Site: call("Save", 88), TotalNS: ms(3000), Via: waits})})
	check.True(t, len(got) == 1 && strings.HasPrefix(got[0].Fix, "write at main.use (main.go:77) only while main.use (main.go:88) does not read"), "%+v", got)
}

// TestUnlockedWork: the prediction is of the advised change: work that waits leaves the lock with the line that calls it, and work that
// computes with all that the function computes which took the lock.
func TestUnlockedWork(t *testing.T) {
	lines := []queues.HolderLine{{WaitSite: site("report@16"), HolderSite: site("kit.Get@101"), Line: site("report@18")}}
	for _, c := range []struct {
		cause report.Cause
		want  string
	}{
		{report.Cause{Cause: report.CauseSleep, Call: "time.Sleep"}, "main.report:18"},
		{report.Cause{Cause: report.CauseCPU}, "main.report"},
	} {
		cause := c.cause
		cause.Site, cause.Via, cause.TotalNS = site("kit.Get@101"), via("lock report@16 sync.(*Mutex).Lock"), ms(3000)
		var changes []predict.Change
		in := &Input{Report: oneGroup(cause), HolderLines: lines, Predict: func(_ string, list []predict.Change) *report.Predicted {
			changes = append(changes, list...)
			return new(report.Predicted)
		}}
		got := rulesByCode(report.RuleLockConvoy)[0].Run(in)
		check.True(t, len(got) == 1 && slices.Equal(changes, []predict.Change{predict.Unlock(c.want)}), "%s: %v predicted for %+v", cause.Cause, changes, got)
	}
}

// TestLockOfDependency: all that a library does under its own lock is one work, whichever line called it, and its user cannot
// move it out of the lock. The functions that the library calls back belong to the user.
func TestLockOfDependency(t *testing.T) {
	library := func(fn string, line int, calls string) *report.Site {
		return &report.Site{Func: "example.org/log." + fn, Line: 9, Module: "example.org/log", CalledFrom: &report.Caller{Func: "main.use", Line: line, Calls: calls}}
	}
	lock := []report.Via{{Wait: report.WaitLock, Call: "sync.(*Mutex).Lock", Site: library("(*Logger).write", 3, "example.org/log.(*Logger).Info")}}
	for _, c := range []struct {
		name  string
		sites [2]*report.Site
		count int
		fix   string
	}{
		{"work of the library", [2]*report.Site{library("(*sink).send", 1, "example.org/log.(*Logger).Info"), library("(*sink).send", 2, "example.org/log.(*Logger).Warn")}, 1, "have the library do that"},
		{"work on a goroutine of the library", [2]*report.Site{{Func: "example.org/log.(*Logger).rotate", Line: 4, Module: "example.org/log"}, {Func: "example.org/log.(*Logger).rotate", Line: 4, Module: "example.org/log"}}, 1, "give log.(*Logger).rotate less to do"},
		{"functions called back", [2]*report.Site{site("format@1"), site("format@2")}, 2, "hand the work at main.format (main.go:1) to another goroutine or a queue, so that example.org/log need not wait"},
		{"work that was called through net/http", [2]*report.Site{library("(*sink).send", 1, "net/http.(*Client).Do"), library("(*sink).send", 2, "net/http.(*Client).Do")}, 1, "have the library do that"},
		{"functions called back that call another library", [2]*report.Site{library("x", 1, "example.org/other.Ask"), library("x", 2, "example.org/other.Ask")}, 2, "hand the work at main.use (.:1) to another goroutine or a queue"},
	} {
		lock := lock
		if c.sites[0].CalledFrom != nil && strings.HasPrefix(c.sites[0].CalledFrom.Calls, "net/http") {
			lock = []report.Via{{Wait: report.WaitLock, Call: "sync.(*Mutex).Lock", Site: library("(*Logger).write", 3, "net/http.(*Client).Do")}}
		}
		rep := oneGroup(report.Cause{Cause: "network", Kind: "outbound", Site: c.sites[0], Via: lock, TotalNS: ms(3000)}, report.Cause{Cause: "network", Kind: "outbound", Site: c.sites[1], Via: lock, TotalNS: ms(2000)})
		got := rulesByCode(report.RuleLockConvoy)[0].Run(&Input{Report: rep})
		check.True(t, len(got) == c.count && strings.HasPrefix(got[0].Fix, c.fix), "%s: %d findings, %+v", c.name, len(got), got)
	}
}

// TestLockBetweenCalls: the service's function holds a library's lock from one call to a later one, as in a transaction, so it can do
// other work before. The function that the library calls back cannot.
func TestLockBetweenCalls(t *testing.T) {
	begin := &report.Site{Func: "example.org/db.(*DB).Begin", Line: 9, Module: "example.org/db", CalledFrom: &report.Caller{Func: "main.save", File: "/src/main.go", Line: 3, Calls: "example.org/db.(*DB).Begin"}}
	ask := report.Cause{Cause: report.CauseNetwork, Kind: "outbound", Site: site("ask@7"), TotalNS: ms(3000)}
	ask.Via = []report.Via{{Wait: report.WaitLock, Call: "sync.(*Mutex).Lock", Site: begin}}
	for _, c := range []struct {
		lines  []queues.HolderLine
		fix    string
		change predict.Change
	}{
		{[]queues.HolderLine{{WaitSite: begin, HolderSite: ask.Site, Line: site("save@5")}}, "do the work at main.save (main.go:5) before the call at main.save (main.go:3)", predict.Unlock("main.save:5")},
		{nil, "hand the work at main.ask (main.go:7) to another goroutine", predict.Remove("", "main.ask:7")},
	} {
		in := &Input{Report: oneGroup(ask), HolderLines: c.lines, Predict: func(string, []predict.Change) *report.Predicted { return new(report.Predicted) }}
		got := rulesByCode(report.RuleLockConvoy)[0].Run(in)
		check.True(t, len(got) == 1 && strings.HasPrefix(got[0].Fix, c.fix) && slices.Equal(got[0].Changes, []predict.Change{c.change}), "%+v", got)
	}
}

// TestAdviceForHolders: advice about a library's lock depends on whether waiters repeat the holder's work, on pauses, and on needless work.
func TestAdviceForHolders(t *testing.T) {
	in := func(fn, module string) *report.Site {
		return &report.Site{Func: fn, Line: 9, Module: module, CalledFrom: &report.Caller{Func: "main.use", File: "/src/main.go", Line: 3, Calls: fn}}
	}
	token, own := in("golang.org/x/oauth2.(*reuseTokenSource).Token", "golang.org/x/oauth2"), site("use@2")
	next := in("github.com/syndtr/goleveldb/leveldb.(*dbIter).Next", "github.com/syndtr/goleveldb")
	edit := in("example.org/chat.(*Client).Edit", "example.org/chat")
	pausing := in("example.org/ids.(*Source).Next", "example.org/ids")
	for _, c := range []struct {
		lock        *report.Site
		holder      report.Cause
		repeatShare float64
		fix         string
		change      predict.Change
	}{
		{token, report.Cause{Cause: report.CauseNetwork, Kind: "outbound", Site: token}, 0.9, "in x/oauth2: make the early expiry", predict.Remove("", token.Func+":9")},
		{token, report.Cause{Cause: report.CauseNetwork, Kind: "outbound", Site: token}, 0.1, "in x/oauth2: renew the token before", predict.Remove("", token.Func+":9")},
		{pausing, report.Cause{Cause: report.CauseSleep, Call: "time.Sleep", Site: pausing}, 0.9, "call the library less often at main.use (main.go:3), such as once for all items", predict.Remove("", pausing.Func+":9")},
		{edit, report.Cause{Cause: report.CauseNetwork, Kind: "outbound", Site: edit}, 0.9, "let requests share no lock of example.org/chat", predict.Unlock("example.org/chat.(*Client).Edit:9")},
		{edit, report.Cause{Cause: report.CauseNetwork, Kind: "outbound", Site: edit}, 0.1, "have the library do that in the background", predict.Remove("", edit.Func+":9")},
		{edit, report.Cause{Cause: report.CauseNetwork, Kind: "inbound", Site: edit}, 0.1, "read at main.use (main.go:3) what the client sends before", predict.Unlock("example.org/chat.(*Client).Edit:9")},
		{own, report.Cause{Cause: report.CauseCPU, Site: next}, 0.9, "in goleveldb's iterators: begin the iterator behind what is deleted", predict.Change{Cause: report.CauseCPU, Site: predict.PackageText(next.Func, "main.use"), Relative: true, Scale: 0.05}},
		{own, report.Cause{Cause: report.CauseNetwork, Kind: "outbound", Call: "net.(*conn).Write", Site: site("show@4")}, 0.9, "give each client a queue and a goroutine that writes", predict.Unlock("main.show:4")},
		{own, report.Cause{Cause: report.CauseNetwork, Kind: "inbound", Call: "net/http.checkConnErrorWriter.Write", Site: site("show@4")}, 0.9, "give each client a queue and a goroutine that writes", predict.Unlock("main.show:4")},
		{own, report.Cause{Cause: report.CauseNetwork, Kind: "inbound", Call: "net/http.(*body).Read", Site: site("show@4")}, 0.9, "read at main.show (main.go:4) what the client sends before", predict.Unlock("main.show:4")},
		{own, report.Cause{Cause: report.CauseNetwork, Kind: "outbound", Call: "net.(*conn).Read", Site: site("ask@4")}, 0.9, "copy under the lock taken at main.go:2 what the call needs", predict.Unlock("main.ask:4")},
		{own, report.Cause{Cause: report.CauseCPU, Site: site("work@4")}, 0.9, "do not compute at main.work", predict.Unlock("main.work")},
	} {
		c.holder.Via, c.holder.TotalNS = []report.Via{{Wait: report.WaitLock, Call: "sync.(*Mutex).Lock", Site: c.lock}}, ms(3000)
		input := &Input{
			Report: oneGroup(c.holder), AcceptsConnections: true, WorkShare: func(string, predict.Change) (predict.WorkShare, bool) {
				return predict.WorkShare{Doing: c.repeatShare, Repeating: c.repeatShare}, true
			},
			Predict: func(string, []predict.Change) *report.Predicted { return new(report.Predicted) },
		}
		got := rulesByCode(report.RuleLockConvoy)[0].Run(input)
		check.True(t, len(got) == 1 && strings.HasPrefix(got[0].Fix, c.fix) && slices.Equal(got[0].Changes, []predict.Change{c.change}), "%s: %+v", c.fix, got)
	}
}

// TestLockOfCache: waiters need the result that the holder of a cache's lock fetches, unless requests that have waited for a fetch then fetch
// their own: a cache with many keys. It is no cache if most requests fetch.
func TestLockOfCache(t *testing.T) {
	fetch := report.Cause{Cause: report.CauseNetwork, Kind: "outbound", Site: site("fetch@7"), TotalNS: ms(3000)}
	fetch.Via = []report.Via{{Wait: report.WaitLock, Call: "sync.(*Mutex).Lock", Site: site("get@2")}}
	for _, c := range []struct {
		share  predict.WorkShare
		fix    string
		change predict.Change
	}{
		{predict.WorkShare{Doing: 0.1}, "do main.get (main.go:3) ahead of requests", predict.Remove("", "main.get:3")},
		{predict.WorkShare{Doing: 0.9, Repeating: 0.1}, "do main.get (main.go:3) ahead of requests", predict.Remove("", "main.get:3")},
		{predict.WorkShare{Doing: 0.1, Repeating: 0.4}, "look up under the lock taken at main.go:2, unlock, and do main.get (main.go:3) without it, once for each key", predict.Unlock("main.get:3")},
		{predict.WorkShare{Doing: 0.9, Repeating: 0.4}, "copy under the lock taken at main.go:2 what the call needs", predict.Unlock("main.get:3")},
	} {
		in := &Input{
			Report: oneGroup(fetch), HolderLines: []queues.HolderLine{{WaitSite: site("get@2"), HolderSite: fetch.Site, Line: site("get@3")}},
			WorkShare: func(string, predict.Change) (predict.WorkShare, bool) { return c.share, true },
			Predict:   func(string, []predict.Change) *report.Predicted { return new(report.Predicted) },
		}
		got := rulesByCode(report.RuleLockConvoy)[0].Run(in)
		check.True(t, len(got) == 1 && strings.HasPrefix(got[0].Fix, c.fix) && slices.Equal(got[0].Changes, []predict.Change{c.change}), "%+v: %+v", c.share, got)
	}
}

// TestHolderEvidence: it fails if kinds of work are listed by their longest route, so that one of many short routes is left out.
func TestHolderEvidence(t *testing.T) {
	var causes []report.Cause
	add := func(line string, ns int64, lock string) {
		via := []report.Via{{Wait: report.WaitLock, Call: "sync.(*Mutex).Lock", Site: site(lock)}}
		causes = append(causes, report.Cause{Cause: report.CauseSleep, Call: "time.Sleep", Site: site(line), Via: via, TotalNS: ns})
	}
	add("a@1", 30, "f@1")
	add("b@2", 29, "f@1")
	add("c@3", 28, "f@1")
	add("d@4", 25, "f@1")
	add("d@4", 24, "g@2")
	in := &Input{Report: oneGroup(causes...)}
	attr := in.attributionOf(&in.Report.Groups[0])
	cand := &candidate{}
	for c, r := range attr.routes(attr.group.All()) {
		cand.routes = append(cand.routes, causeRoute{c, r.Via, r.TotalNS})
	}
	list := holderEvidence(attr, cand, 136)
	check.Equal(t, len(list), 3, "kinds of work")
	check.Equal(t, list[0].Value, 49.0/136, "share of the largest: %s", list[0].Text)
}

// TestLockOfClient: a client of the standard library holds its own lock during a call. The service can unlock no such lock.
func TestLockOfClient(t *testing.T) {
	for call, fix := range map[string]string{"net/rpc.(*Client).Call": "let requests share no lock of net/rpc: give them several instances", "sync.(*Mutex).Lock": "copy under the lock taken at"} {
		rep := oneGroup(report.Cause{Cause: "network", Kind: "outbound", Call: "net.(*conn).Read", Site: siteOf("main.ask"), TotalNS: 4e9, Share: 0.9, Requests: 100, Via: []report.Via{{Wait: report.WaitLock, Call: call, Site: siteOf("main.ask")}}})
		got := findAll(t, &Input{Report: rep}, rulesByCode(report.RuleLockConvoy))
		check.True(t, len(got) == 1 && strings.HasPrefix(got[0].Fix, fix), "%s: %+v", call, got)
	}
}
