package timeline

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// TestSpreadGoroutineIDs decodes ids that are so far apart that each would need its own page: most must be in the
// map, and all must be found.
func TestSpreadGoroutineIDs(t *testing.T) {
	const n = 20000
	var b strings.Builder
	b.WriteString("Trace Go1.23\n")
	for i := 0; i < n; i += 1000 {
		b.WriteString("EventBatch gen=1 m=1 time=5 size=auto\n")
		for k := i; k < i+1000; k++ {
			fmt.Fprintf(&b, "GoStatus dt=1 g=%d m=%d gstatus=4\n", distantID(k), tracefmt.NoM)
		}
	}
	fmt.Fprintf(&b, "EventBatch gen=1 m=%d time=5 size=auto\nFrequency freq=1000000000\n", tracefmt.NoM)
	data := must.Have(tracetext.Assemble([]byte(b.String())))(t)
	checkAgainstReference(t, data)
	in := decodeAll(data, 2)
	g := in.gens[0]
	if pages := len(g.ids.pages); pages > 1024+len(data)/512 {
		t.Errorf("%d pages for %d bytes", pages, len(data))
	}
	check.True(t, len(g.ids.sparse) != 0, "no id is in the map, so the test proves nothing")
	win := Window{Gens: in.gens}
	for k := range n {
		if s := win.Spans(distantID(k), BeforeTrace, math.MaxInt64, nil); len(s) != 1 || s[0].State != Waiting {
			t.Fatalf("goroutine %d: %v", distantID(k), s)
		}
	}
}

func distantID(k int) uint64 { return uint64(k+1) << 20 }

// TestRunsWithoutEnd decodes threads that start goroutines without stopping any. The total length of the walks
// over their runs must not grow with the square of their number.
func TestRunsWithoutEnd(t *testing.T) {
	const n = 60000
	var b strings.Builder
	b.WriteString("Trace Go1.23\n")
	for i := 0; i < n; i += 2000 {
		b.WriteString("EventBatch gen=1 m=1 time=5 size=auto\n")
		for k := i; k < i+2000; k++ {
			fmt.Fprintf(&b, "GoStart dt=1 g=%d g_seq=0\n", k+1)
		}
	}
	fmt.Fprintf(&b, "EventBatch gen=1 m=%d time=5 size=auto\nFrequency freq=1000000000\nEventBatch gen=2 m=1 time=6 size=0\nEventBatch gen=2 m=1 time=6 size=auto\nFrequency freq=1\n", tracefmt.NoM)
	data := must.Have(tracetext.Assemble([]byte(b.String())))(t)
	in := decodeAll(data, 1)
	if len(in.gens) == 0 {
		t.Fatal(in.err)
	}
	win := Window{Gens: in.gens[:1]}
	spans := 0
	for k := range n {
		spans += len(win.Spans(uint64(k+1), BeforeTrace, math.MaxInt64, nil))
	}
	check.Equal(t, spans, n, "spans goroutines")
}

func TestCloseWhileReading(t *testing.T) {
	pr, pw := io.Pipe()
	go pw.Write(tracetext.Header(26))
	rd := must.Have(tracefmt.NewReader(pr, tracefmt.Options{}))(t)
	dec := NewDecoder(rd, 2)
	dec.Close()
	dec.Close() // a second call has no effect
	if _, err := dec.Next(t.Context()); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("after Close: %v", err)
	}
	pw.Close() // ends the pending Read
}

// TestSeveralFlaws decodes traces with several flaws of one kind. The error must name the lowest of them, so that
// it depends neither on the number of workers nor on chance.
func TestSeveralFlaws(t *testing.T) {
	end := fmt.Sprintf("EventBatch gen=1 m=%d time=5 size=auto\nFrequency freq=1000000000\n", tracefmt.NoM)
	lives, procs := "Trace Go1.23\n", "Trace Go1.23\n"
	for k := range 40 {
		id := 100 - k
		lives += fmt.Sprintf("EventBatch gen=1 m=%d time=5 size=auto\nGoStatus dt=1 g=%d m=%d gstatus=4\n", id, id, tracefmt.NoM)
		lives += fmt.Sprintf("GoUnblock dt=1 g=%d g_seq=7 stack=0\n", id)
		procs += fmt.Sprintf("EventBatch gen=1 m=%d time=5 size=auto\nProcStart dt=1 p=%d p_seq=1\n", id, id)
	}
	for _, c := range []struct{ text, want string }{
		{lives + end, "a part of goroutine 61's life is missing"},
		{procs + end, "the status of P 61 is missing"},
	} {
		data := must.Have(tracetext.Assemble([]byte(c.text)))(t)
		for _, workers := range []int{1, 2, 3, 8} {
			if in := decodeAll(data, workers); in.err == nil || !strings.HasSuffix(in.err.Error(), c.want) {
				t.Errorf("%d workers: %v; want %q", workers, in.err, c.want)
			}
		}
	}
}

// TestUnknownTypes decodes several unknown event types in threads that several workers decode. UnknownType must
// return the lowest.
func TestUnknownTypes(t *testing.T) {
	var b strings.Builder
	b.WriteString("Trace Go1.23\n")
	for k := range 40 {
		fmt.Fprintf(&b, "EventBatch gen=1 m=%d time=5 size=auto\nGoStatus dt=1 g=%d m=%d gstatus=4\n", k, k+1, tracefmt.NoM)
	}
	fmt.Fprintf(&b, "EventBatch gen=1 m=%d time=5 size=auto\nFrequency freq=1000000000\n", tracefmt.NoM)
	data := must.Have(tracetext.Assemble([]byte(b.String())))(t)
	// Replace the types of the status events.
	n := byte(0)
	for i := 16; i+1 < len(data); i++ {
		if data[i] == byte(tracefmt.EvGoStatus) && data[i+1] == 1 {
			data[i] = 240 - n
			n++
		}
	}
	must.Equal(t, n, 40, "events changed")
	for _, workers := range []int{1, 2, 3, 8} {
		in := decodeAll(data, workers)
		if typ, ok := in.d.UnknownType(); !ok || typ != 201 || in.d.Unknown != 40 {
			t.Errorf("%d workers: %d %t, %d in all", workers, typ, ok, in.d.Unknown)
		}
	}
}
