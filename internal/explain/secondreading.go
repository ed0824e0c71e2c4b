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
)

// selfWaits holds which groups' requests wait for other groups of the process.
type selfWaits struct {
	plan        answers.Plan
	peersByText map[string]selfPeer // by the waiting group's text; includes unproven ones, which no path follows
}

// A selfPeer is the peer of a group, with the serving groups by texts that are valid in each reading.
type selfPeer struct {
	peers.Peer
	serverTexts []string // texts of the serving groups
}

// findSelfWaits returns which groups wait for other groups of this process, after the first reading of a trace. It is nil after
// later readings, and if no such wait is proven.
func (r *reading) findSelfWaits() *selfWaits {
	if r.selfWaits != nil || r.pass.Generations == 0 {
		return nil
	}
	out := &selfWaits{
		plan:        answers.Plan{Groups: make(map[string]int32), Answerers: make(map[int32][]int32)},
		peersByText: make(map[string]selfPeer),
	}
	for _, id := range r.peers.WaitingGroups() {
		if p, ok := r.peers.PeerOf(id); ok {
			selfPeer := selfPeer{Peer: p}
			for _, g := range append([]path.GroupID{p.Group}, p.FurtherGroups...) {
				if p.Proven {
					out.plan.Answerers[int32(id)] = append(out.plan.Answerers[int32(id)], int32(g))
				}
				selfPeer.serverTexts = append(selfPeer.serverTexts, r.groupText(g))
			}
			out.peersByText[r.groupText(id)] = selfPeer
		}
	}
	if len(out.plan.Answerers) == 0 {
		return nil
	}
	for from, to := range r.mergedGroups {
		out.plan.Groups[r.groupText(path.GroupID(from))] = int32(to)
	}
	return out
}

// rereading says whether a trace will be read again. Then only groups, peers and slowest requests of the first reading
// are of use. Samples for predictions alone take a sixth of the CPU time of both readings.
type rereading uint8

const (
	rereadNever rereading = iota
	rereadMaybe
	rereadAlways
)

// guessReread is called after each walk. After the 1st, 2nd, 4th, ... generation it guesses whether the trace will be
// read again, and if so drops the optional sums. If the guess is wrong, the trace is read again to fill them.
func (r *reading) guessReread() {
	r.walkCount++
	if !r.pass.HasDroppedOptionalSums() && r.walkCount&(r.walkCount-1) == 0 && (r.opts.isRereadForced || r.peers.HasProvenPeer()) {
		r.pass.DropOptionalSums()
	}
}

// groupText returns a text that identifies a group in every reading of the trace; ids differ between readings.
func (r *reading) groupText(id path.GroupID) string {
	return r.pass.Stages[0].IDs.Group(id).Text(&r.pass.Symbols)
}

// resetOutputs clears the values that a reading fills.
func (o *Options) resetOutputs() {
	if o.Index != nil {
		o.Index.Reset()
	}
}

// maxBuffered bounds how much of a trace that is not seekable is buffered for the second reading.
const maxBuffered = 64 << 20

// errReadOnce is why a trace cannot be read again.
var errReadOnce = errors.New("it can be read only once: record it to a file (whylate record -o x.whylate), and explain that")

// selectsPart reports whether the report covers only a part of the trace's requests.
func (o *Options) selectsPart() bool {
	return o.From != 0 || o.To != 0 || o.TraceID != [16]byte{} || o.SpanID != [8]byte{}
}

// idTexts returns a phrase for the trace id and span id that select requests, "" if the options have none.
func (o *Options) idTexts() string {
	var names []string
	if o.TraceID != [16]byte{} {
		names = append(names, fmt.Sprintf("the trace %x", o.TraceID))
	}
	if o.SpanID != [8]byte{} {
		names = append(names, fmt.Sprintf("the span %x", o.SpanID))
	}
	return strings.Join(names, " and ")
}

// wholeTrace returns the options for a first reading of the whole trace, which only finds the groups that call each other.
func (o *Options) wholeTrace() Options {
	out := *o
	out.From, out.To, out.TraceID, out.SpanID = 0, 0, [16]byte{}, [8]byte{}
	out.Index, out.Checks, out.Replayer, out.Slowest = nil, nil, nil, -1
	return out
}

// reopenable returns a reader of source, and a function that returns a reader from the same beginning again. If source is not
// seekable, it buffers up to maxBuffered bytes; then canReopen is false, because reopening fails for a longer trace.
func reopenable(source io.Reader) (_ io.Reader, reopen func() (io.ReadCloser, error), canReopen bool) {
	if s, ok := source.(io.ReadSeeker); ok {
		if offset, err := s.Seek(0, io.SeekCurrent); err == nil {
			return source, func() (io.ReadCloser, error) {
				_, err := s.Seek(offset, io.SeekStart)
				return io.NopCloser(source), err
			}, true
		}
	}
	buffered := &bufferingReader{source: source}
	return buffered, func() (io.ReadCloser, error) {
		buffered.mu.Lock()
		defer buffered.mu.Unlock()
		if buffered.isOverflown {
			return nil, errReadOnce
		}
		return io.NopCloser(bytes.NewReader(buffered.buf)), nil
	}, false
}

// A bufferingReader stores the bytes that pass through it, up to maxBuffered.
type bufferingReader struct {
	source      io.Reader
	mu          sync.Mutex
	buf         []byte
	isOverflown bool // there was more
}

// Read implements io.Reader. It drops the buffer for good once the trace exceeds maxBuffered.
func (k *bufferingReader) Read(p []byte) (int, error) {
	n, err := k.source.Read(p)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.isOverflown = k.isOverflown || len(k.buf)+n > maxBuffered; k.isOverflown {
		k.buf = nil
	} else {
		k.buf = append(k.buf, p[:n]...)
	}
	return n, err
}
