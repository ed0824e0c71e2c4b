package request

import (
	"strings"

	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// Flags of a stack, for timeline.Decoder.Classify: events with such a stack
// become marks, from which HTTP/1 connections and gRPC workers are followed.
// What may name a request (see Namer) is timeline.FlagTelling besides.
const (
	flagPeek    uint8 = 1 << iota // waits for the next request of a connection
	flagHeader                    // reads a request's header
	flagBody                      // starts the background read: the handler is next
	flagFinish                    // finishes a response
	flagFlush                     // ... and hands its last bytes to the kernel
	flagWorker                    // a gRPC stream worker without work
	flagMessage                   // reads the beginning of the next message of a WebSocket
)

// Functions that tell requests apart. A function's class is found once.
type fnClass uint8

const (
	fnOther fnClass = iota
	fnServe
	fnReadRequest
	fnPeek
	fnBackground
	fnFinish
	fnFlush
	fnChunk
	fnGRPCWorker
	fnRuntime
	fnRead    // reads from a connection
	fnMessage // looks for the next message of a WebSocket
	fnRest    // reads the rest of one
)

func classOf(fn string) fnClass {
	switch fn {
	case "net/http.(*conn).serve":
		return fnServe
	case "net/http.(*conn).readRequest":
		return fnReadRequest
	case "bufio.(*Reader).Peek":
		return fnPeek
	case "net/http.(*connReader).startBackgroundRead":
		return fnBackground
	case "net/http.(*response).finishRequest":
		return fnFinish
	case "bufio.(*Writer).Flush":
		return fnFlush
	case "google.golang.org/grpc.(*Server).serverWorker":
		return fnGRPCWorker
	case "internal/poll.(*FD).Read":
		return fnRead
	}
	if strings.Contains(fn, "websocket") || strings.Contains(fn, "/ws") || strings.Contains(fn, "/gws.") {
		if k := messageClass(fn); k != fnOther {
			return k
		}
	}
	switch {
	case strings.HasPrefix(fn, "net/http.(*chunkWriter)."):
		return fnChunk
	case strings.HasPrefix(fn, "runtime."):
		return fnRuntime
	}
	return fnOther
}

// messageClass tells which functions of libraries for WebSockets begin to read a
// message, and which read what follows: gorilla/websocket and its forks,
// coder/websocket (nhooyr.io/websocket), golang.org/x/net/websocket, gobwas/ws and
// lxzan/gws.
func messageClass(fn string) fnClass {
	pkg := stdlib.Package(fn)
	switch name := strings.TrimPrefix(fn, pkg+"."); {
	case strings.Contains(pkg, "websocket"):
		switch name {
		case "(*Conn).NextReader", "(*Conn).reader", "hybiFrameReaderFactory.NewFrameReader":
			return fnMessage
		case "(*messageReader).Read", "(*msgReader).Read":
			return fnRest
		}
	case strings.HasSuffix(pkg, "/ws") && name == "ReadHeader", strings.HasSuffix(pkg, "/wsutil") && name == "(*Reader).NextFrame", strings.HasSuffix(pkg, "/gws") && name == "(*frameHeader).Parse":
		return fnMessage
	case strings.HasSuffix(pkg, "/wsutil") && name == "(*Reader).Read":
		return fnRest
	}
	return fnOther
}

// A Classifier gives stacks their flags.
type Classifier struct {
	syms  *tracefmt.Symbols
	fns   []fnClass
	tells []bool
}

// NewClassifier returns a classifier for stacks of syms.
func NewClassifier(syms *tracefmt.Symbols) *Classifier { return &Classifier{syms: syms} }

func (c *Classifier) class(f tracefmt.FrameID) fnClass {
	fn := c.syms.Frame(f).Func
	for int(fn) >= len(c.fns) {
		name := c.syms.String(tracefmt.StringID(len(c.fns)))
		c.fns, c.tells = append(c.fns, classOf(name)), append(c.tells, isRoot(name) || isMethod(name) || isObserver(name))
	}
	return c.fns[fn]
}

// Flags returns the flags of a stack.
func (c *Classifier) Flags(id tracefmt.StackID) uint8 {
	frames := c.syms.Stack(id)
	var flags uint8
	above := fnOther // the class of the frame that this one called
	chunk := false
	runtimeOnly := true
	read, message, rest := false, false, false
	for _, f := range frames {
		k := c.class(f)
		if c.tells[c.syms.Frame(f).Func] {
			flags |= timeline.FlagTelling
		}
		switch k {
		case fnServe:
			if above == fnPeek {
				flags |= flagPeek
			}
		case fnReadRequest:
			flags |= flagHeader
		case fnBackground:
			flags |= flagBody
		case fnChunk:
			chunk = true
		case fnFinish:
			flags |= flagFinish
			if above == fnFlush && !chunk {
				flags |= flagFlush
			}
		case fnGRPCWorker:
			if runtimeOnly {
				flags |= flagWorker
			}
		case fnRead:
			read = true
		case fnMessage:
			message = true
		case fnRest:
			rest = true
		}
		if k != fnRuntime {
			runtimeOnly = false
		}
		above = k
	}
	if flags&flagPeek != 0 {
		flags &^= flagHeader
	}
	if read && message && !rest {
		flags |= flagMessage
	}
	return flags
}

// streamKind tells goroutines that serve one stream by their start function.
func streamKind(fn string) Kind {
	switch {
	case strings.Contains(fn, "http2") && (strings.HasSuffix(fn, "erverConn).runHandler") || strings.Contains(fn, "erverConn).runHandler.")):
		return HTTP2
	case strings.HasPrefix(fn, "google.golang.org/grpc.(*Server).serveStreams.func"),
		strings.HasPrefix(fn, "google.golang.org/grpc.(*Server).handleStream"):
		return GRPC
	}
	return 0
}
