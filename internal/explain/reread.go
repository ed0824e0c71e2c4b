package explain

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/whylate/whylate/internal/explain/answers"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/peers"
	"github.com/whylate/whylate/internal/explain/validate"
)

// itself says of which groups requests wait for other groups of the process.
type itself struct {
	plan  answers.Plan
	peers map[string]served // by the text of the group that waits: hints, too, which no path follows
}

type served struct {
	peers.Peer
	serve []string // the texts of the groups that serve
}

// itself returns what the first reading of a trace has found out, nil where
// nothing waits for this process, or this is not the first.
func (e *engine) itself() *itself {
	if e.known != nil || e.pass.Generations == 0 {
		return nil
	}
	out := &itself{plan: answers.Plan{Groups: make(map[string]int32), Answerers: make(map[int32][]int32)}, peers: make(map[string]served)}
	for _, id := range e.peers.WaitingGroups() {
		if r := e.opts.Peer; r != nil && r.Clock.IsKnown {
			if _, of, _ := e.peers.PeerIn(id, e.clock(), e.pass.Start, e.pass.End, r); of != nil {
				continue
			}
		}
		if p, ok := e.peers.PeerOf(id); ok {
			of := served{Peer: p}
			for _, g := range append([]path.GroupID{p.Group}, p.FurtherGroups...) {
				if p.Proven {
					out.plan.Answerers[int32(id)] = append(out.plan.Answerers[int32(id)], int32(g))
				}
				of.serve = append(of.serve, e.text(g))
			}
			out.peers[e.text(id)] = of
		}
	}
	if len(out.plan.Answerers) == 0 {
		return nil
	}
	for from, to := range e.became {
		out.plan.Groups[e.text(path.GroupID(from))] = int32(to)
	}
	return out
}

// nextReading says whether a trace will be read again. Of the first reading of a trace whose requests wait for others of the same
// process, only the groups, the peers and the slowest requests are of use: graphs for predictions alone take a sixth of the CPU of
// both readings.
type nextReading uint8

const (
	notAgain nextReading = iota
	perhapsAgain
	alwaysAgain
)

// guess is asked after each walk whether the trace will be read again, and answers after the 1st, 2nd, 4th ... generation. If it proves
// wrong, the trace is read again all the same, for what was left out.
func (e *engine) guess() {
	e.walks++
	if !e.pass.HasDroppedOptionalSums() && e.walks&(e.walks-1) == 0 && (e.opts.guessYes || e.peers.HasProvenPeer()) {
		e.pass.DropOptionalSums()
	}
}

// text is what a group is known by in another reading of the trace.
func (e *engine) text(id path.GroupID) string {
	return e.pass.Stages[0].IDs.Group(id).Text(&e.pass.Symbols)
}

// reset makes what a reading fills as new.
func (o *Options) reset() {
	if o.Index != nil {
		o.Index.Reset()
	}
	if o.Validate != nil {
		*o.Validate = validate.Checks{Damaged: o.Validate.Damaged}
	}
}

// keepMost bounds how much of a trace that can be read only once is held in
// memory while it is read, so that it can be read again.
const keepMost = 64 << 20

// errOnce says why a trace is not read again.
var errOnce = errors.New("it can be read only once: record it to a file (whylate record -o x.whylate), and explain that")

// isPart reports whether the report is about a part of the trace's requests.
func (o *Options) isPart() bool {
	return o.From != 0 || o.To != 0 || o.TraceID != [16]byte{} || o.SpanID != [8]byte{}
}

// named says which trace and span of a tracing system are asked for, "" if none is.
func (o *Options) named() string {
	var names []string
	if o.TraceID != [16]byte{} {
		names = append(names, fmt.Sprintf("the trace %x", o.TraceID))
	}
	if o.SpanID != [8]byte{} {
		names = append(names, fmt.Sprintf("the span %x", o.SpanID))
	}
	return strings.Join(names, " and ")
}

// whole returns options to read all of the trace with, for what it knows of peers.
func (o *Options) whole() Options {
	out := *o
	out.From, out.To, out.TraceID, out.SpanID = 0, 0, [16]byte{}, [8]byte{}
	out.Index, out.Validate, out.Keep, out.Slowest = nil, nil, nil, -1
	return out
}

// kept returns a reader of what r reads, and how to read it again; sure says that
// this can be done.
func kept(r io.Reader) (_ io.Reader, again func() (io.ReadCloser, error), sure bool) {
	if s, ok := r.(io.ReadSeeker); ok {
		if at, err := s.Seek(0, io.SeekCurrent); err == nil {
			return r, func() (io.ReadCloser, error) {
				_, err := s.Seek(at, io.SeekStart)
				return io.NopCloser(r), err
			}, true
		}
	}
	k := &keeping{r: r}
	return k, func() (io.ReadCloser, error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.over {
			return nil, errOnce
		}
		return io.NopCloser(bytes.NewReader(k.buf)), nil
	}, false
}

// keeping keeps what it reads.
type keeping struct {
	r    io.Reader
	mu   sync.Mutex
	buf  []byte
	over bool // too much
}

func (k *keeping) Read(p []byte) (int, error) {
	n, err := k.r.Read(p)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over = k.over || len(k.buf)+n > keepMost; k.over {
		k.buf = nil
	} else {
		k.buf = append(k.buf, p[:n]...)
	}
	return n, err
}
