package request

import (
	"strings"

	"github.com/whylate/whylate/internal/tracefmt"
)

// Flags of a stack, for timeline.Decoder.Classify: events with such a stack
// become marks, from which HTTP/1 connections and gRPC workers are followed.
const (
	flagPeek   uint8 = 1 << iota // waits for the next request of a connection
	flagHeader                   // reads a request's header
	flagBody                     // starts the background read: the handler is next
	flagFinish                   // finishes a response
	flagFlush                    // ... and hands its last bytes to the kernel
	flagWorker                   // a gRPC stream worker without work
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
	}
	switch {
	case strings.HasPrefix(fn, "net/http.(*chunkWriter)."):
		return fnChunk
	case strings.HasPrefix(fn, "runtime."):
		return fnRuntime
	}
	return fnOther
}

// A Classifier gives stacks their flags.
type Classifier struct {
	syms *tracefmt.Symbols
	fns  []fnClass
}

// NewClassifier returns a classifier for stacks of syms.
func NewClassifier(syms *tracefmt.Symbols) *Classifier { return &Classifier{syms: syms} }

func (c *Classifier) class(f tracefmt.FrameID) fnClass {
	fn := c.syms.Frame(f).Func
	for int(fn) >= len(c.fns) {
		c.fns = append(c.fns, classOf(c.syms.String(tracefmt.StringID(len(c.fns)))))
	}
	return c.fns[fn]
}

// Flags returns the flags of a stack.
func (c *Classifier) Flags(id tracefmt.StackID) uint8 {
	frames := c.syms.Stack(id)
	var flags uint8
	above := fnOther // the class of the frame called by the one at hand
	chunk := false
	runtimeOnly := true
	for _, f := range frames {
		k := c.class(f)
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
		}
		if k != fnRuntime {
			runtimeOnly = false
		}
		above = k
	}
	if flags&flagPeek != 0 {
		flags &^= flagHeader
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
