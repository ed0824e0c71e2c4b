package critpath

import (
	"strings"

	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// stackTraits is a set of facts that a stack shows about a wait or a wake.
type stackTraits uint32

const (
	traitsKnown        stackTraits = 1 << iota // the set has been computed
	inPoll                                     // in the network poller: a deadline or a Close
	restartsWorld                              // restarts the world, and so polls the network
	gcSemaphore                                // waits for a phase of garbage collection on a semaphore
	stopWorldSemaphore                         // waits to stop the world
	inMarkAssist
	waitsForClient // waits for a client of the process: an HTTP server's side of a connection
	inCond         // sync.Cond
	inWaitGroup    // sync.WaitGroup.Wait
	inMutex        // sync.Mutex, sync.RWMutex
	inOnce         // sync.Once
	inBroadcast    // sync.(*Cond).Broadcast
	inConnServe    // a server's connection ...
	inHandler      // ... in a handler
	notStdlib      // code outside the standard library
	inWebSocket    // a connection that a WebSocket library has taken over
	unorderedSlot  // waits for a slot of a pool that serves its waiters in any order
	copiesResponse // a handler copies a stream into its response, and may wait for that stream ...
	sendsFile      // ... unless the stream is a file
)

// functionTraits returns what one function on a stack shows.
func functionTraits(fn string) stackTraits {
	if traits := traitsByFunction[fn]; traits != 0 {
		return traits
	}
	switch {
	case strings.HasPrefix(fn, "internal/poll."):
		return inPoll
	case strings.HasPrefix(fn, "runtime.startTheWorld"), strings.HasPrefix(fn, "runtime.gcMarkTermination"):
		return restartsWorld
	case strings.HasPrefix(fn, "runtime.stopTheWorld"):
		return stopWorldSemaphore
	case strings.HasPrefix(fn, "runtime.gcAssistAlloc"):
		return inMarkAssist
	case stdlib.IsMutex(fn):
		return inMutex
	case strings.HasPrefix(fn, "sync.(*Once)."):
		return inOnce
	case isWebSocket(fn):
		return notStdlib | inWebSocket
	case !stdlib.Contains(fn):
		return notStdlib
	}
	return 0
}

// isWebSocket reports whether a function is a method of a connection in one of the usual WebSocket libraries. Client
// and server use the same type: in a handler the peer is the handler's client, unless the handler is itself a proxy.
func isWebSocket(fn string) bool {
	for _, lib := range []string{"github.com/gorilla/websocket.", "github.com/coder/websocket.", "nhooyr.io/websocket.", "golang.org/x/net/websocket."} {
		if method, ok := strings.CutPrefix(fn, lib); ok {
			return strings.HasPrefix(method, "(*Conn).")
		}
	}
	return false
}

// traitsByFunction has functions whose meaning follows from the sources of the runtime and of net/http (Go 1.22 to
// 1.26).
var traitsByFunction = map[string]stackTraits{
	"sync.(*Cond).Wait":                inCond,
	"sync.(*Cond).Broadcast":           inBroadcast,
	"sync.(*WaitGroup).Wait":           inWaitGroup, // not functions that WaitGroup.Go started: these have (*WaitGroup).Go.func1 on their stack
	"net/http.(*conn).serve":           inConnServe,
	"net/http.serverHandler.ServeHTTP": inHandler,
	"net/http.(*response).ReadFrom":    copiesResponse,
	"net.sendFile":                     sendsFile,
	"database/sql.(*DB).conn":          unorderedSlot, // connRequestSet.TakeRandom; the order of a map in earlier versions
	"runtime.gcStart":                  gcSemaphore | restartsWorld,
	"runtime.gcMarkDone":               gcSemaphore,
	"runtime.gcMarkTermination":        restartsWorld,
	"google.golang.org/grpc/internal/transport.(*http2Server).HandleStreams": waitsForClient,
	"internal/poll.(*FD).Accept":                       waitsForClient, // a client that connects
	"net/http.(*connReader).Read":                      waitsForClient,
	"net/http.(*connReader).backgroundRead":            waitsForClient,
	"net/http.checkConnErrorWriter.Write":              waitsForClient,
	"net/http.(*body).Read":                            waitsForClient,
	"net/http.(*http2serverConn).writeFrame":           waitsForClient,
	"net/http.(*http2requestBody).Read":                waitsForClient,
	"net/http.(*http2serverConn).readFrames":           waitsForClient,
	"golang.org/x/net/http2.(*serverConn).readFrames":  waitsForClient,
	"net/http/internal/http2.(*serverConn).readFrames": waitsForClient,
	"golang.org/x/net/http2.(*requestBody).Read":       waitsForClient,
	"net/http/internal/http2.(*requestBody).Read":      waitsForClient,
}

// traitsOf returns the traits of a stack.
func (w *Walker) traitsOf(id tracefmt.StackID) stackTraits {
	if int(id) < len(w.stackTraits) {
		if traits := w.stackTraits[id]; traits != 0 {
			return traits
		}
	} else {
		grown := make([]stackTraits, max(w.symbols.Stacks(), int(id)+1))
		copy(grown, w.stackTraits)
		w.stackTraits = grown
	}
	traits := traitsKnown
	for _, f := range w.symbols.Stack(id) {
		fn := w.symbols.Frame(f).Func
		for int(fn) >= len(w.functionTraits) {
			w.functionTraits = append(w.functionTraits, 0)
		}
		if w.functionTraits[fn] == 0 {
			w.functionTraits[fn] = traitsKnown | functionTraits(w.symbols.String(fn))
		}
		if w.functionTraits[fn]&inOnce != 0 && traits&notStdlib != 0 {
			break // the function passed to Once.Do has its own wait
		}
		traits |= w.functionTraits[fn]
	}
	if traits&(inConnServe|inHandler) == inConnServe || traits&inHandler != 0 && traits&inWebSocket != 0 || traits&copiesResponse != 0 && traits&sendsFile != 0 {
		traits |= waitsForClient // handshakes, headers, responses
	}
	w.stackTraits[id] = traits
	return traits
}
