package critpath

import (
	"strings"

	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// bits say what a stack tells about a wait or a wake.
type bits uint32

const (
	known       bits = 1 << iota
	inPoll           // the network poller's own code: a deadline or a close
	restarts         // the world is being restarted, which polls the network by the way
	gcSem            // waits for a phase of garbage collection on a semaphore
	stopsSem         // waits for its turn to stop the world
	inAssist         // a mark assist
	inbound          // an HTTP server's side of a connection
	cond             // sync.Cond
	waitGroup        // sync.WaitGroup
	mutex            // sync.Mutex, sync.RWMutex
	once             // sync.Once
	broadcast        // sync.(*Cond).Broadcast
	connSide         // a server's connection ...
	handlerSide      // ... in a handler
	foreign          // code that is not the standard library's
	webSocket        // a connection that a library of WebSockets has taken over
	anyPlace         // waits for a place of a pool that is handed to any of those who wait
	answers          // a handler copies something into its answer, which it may have to wait for ...
	sendsFile        // ... unless that is a file
)

func bitsOf(fn string) bits {
	if b := exact[fn]; b != 0 {
		return b
	}
	switch {
	case strings.HasPrefix(fn, "internal/poll."):
		return inPoll
	case strings.HasPrefix(fn, "runtime.startTheWorld"), strings.HasPrefix(fn, "runtime.gcMarkTermination"):
		return restarts
	case strings.HasPrefix(fn, "runtime.stopTheWorld"):
		return stopsSem
	case strings.HasPrefix(fn, "runtime.gcAssistAlloc"):
		return inAssist
	case stdlib.IsMutex(fn):
		return mutex
	case strings.HasPrefix(fn, "sync.(*Once)."):
		return once
	case isWebSocket(fn):
		return foreign | webSocket
	case !stdlib.Is(fn):
		return foreign
	}
	return 0
}

// isWebSocket reports whether a function is a method of a connection in one of the usual libraries. Their ends look alike:
// it is a handler's own client that is at the other one, unless the handler itself is a proxy.
func isWebSocket(fn string) bool {
	for _, lib := range []string{"github.com/gorilla/websocket.", "github.com/coder/websocket.", "nhooyr.io/websocket.", "golang.org/x/net/websocket."} {
		if method, ok := strings.CutPrefix(fn, lib); ok {
			return strings.HasPrefix(method, "(*Conn).")
		}
	}
	return false
}

// exact: names whose meaning was read in the runtime's and net/http's
// sources (Go 1.22 to 1.26).
var exact = map[string]bits{
	"sync.(*Cond).Wait":                cond,
	"sync.(*Cond).Broadcast":           broadcast,
	"sync.(*WaitGroup).Wait":           waitGroup, // what a goroutine of Go does has (*WaitGroup).Go.func1 on its stack
	"net/http.(*conn).serve":           connSide,
	"net/http.serverHandler.ServeHTTP": handlerSide,
	"net/http.(*response).ReadFrom":    answers,
	"net.sendFile":                     sendsFile,
	"database/sql.(*DB).conn":          anyPlace, // connRequestSet.TakeRandom, and a map's order before
	"runtime.gcStart":                  gcSem | restarts,
	"runtime.gcMarkDone":               gcSem,
	"runtime.gcMarkTermination":        restarts,
	"google.golang.org/grpc/internal/transport.(*http2Server).HandleStreams": inbound,
	"internal/poll.(*FD).Accept":                       inbound, // whoever comes
	"net/http.(*connReader).Read":                      inbound,
	"net/http.(*connReader).backgroundRead":            inbound,
	"net/http.checkConnErrorWriter.Write":              inbound,
	"net/http.(*body).Read":                            inbound,
	"net/http.(*http2serverConn).writeFrame":           inbound,
	"net/http.(*http2requestBody).Read":                inbound,
	"net/http.(*http2serverConn).readFrames":           inbound,
	"golang.org/x/net/http2.(*serverConn).readFrames":  inbound,
	"net/http/internal/http2.(*serverConn).readFrames": inbound,
	"golang.org/x/net/http2.(*requestBody).Read":       inbound,
	"net/http/internal/http2.(*requestBody).Read":      inbound,
}

// bits returns what a stack tells.
func (w *Walker) bits(id tracefmt.StackID) bits {
	if int(id) < len(w.cache) {
		if b := w.cache[id]; b != 0 {
			return b
		}
	} else {
		grown := make([]bits, max(w.syms.Stacks(), int(id)+1))
		copy(grown, w.cache)
		w.cache = grown
	}
	b := known
	for _, f := range w.syms.Stack(id) {
		fn := w.syms.Frame(f).Func
		for int(fn) >= len(w.fns) {
			w.fns = append(w.fns, 0)
		}
		if w.fns[fn] == 0 {
			w.fns[fn] = known | bitsOf(w.syms.String(fn))
		}
		if w.fns[fn]&once != 0 && b&foreign != 0 {
			break // what the function given to a sync.Once waits for, it waits for itself
		}
		b |= w.fns[fn]
	}
	if b&(connSide|handlerSide) == connSide || b&handlerSide != 0 && b&webSocket != 0 || b&answers != 0 && b&sendsFile != 0 {
		b |= inbound // handshakes, headers, responses
	}
	w.cache[id] = b
	return b
}
