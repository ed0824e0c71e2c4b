package kernelevents

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

var sampleTables = Tables{
	Start: 1e9, End: 3e9, PID: 9227, NSPID: 1, CPUs: 2, ClockOffsetNS: -5, IsThrottleExact: true, Calls: map[int32]string{0: "read", 202: "futex"},
	Threads: []Thread{{TID: 9227, NSTID: 1, PID: 9227, Comm: "orders", Process: "orders", Cgroup: 7, Own: true}, {TID: 44, PID: 44, Comm: "python3", Process: "python3", IsPeer: true}},
	Stacks:  []Stack{{[]string{"io_schedule", "filemap_fault"}}, {[]string{"futex_wait"}}},
	Cgroups: []Cgroup{{ID: 7, Path: "/kube/x", Container: "orders", QuotaNS: 4e7, PeriodNS: 1e8}},
	Sockets: []Socket{{ID: 3, Protocol: "tcp", Local: "10.0.0.1:80", Remote: "10.0.0.2:4711"}, {ID: 4, Protocol: "unix", Peer: 3}},
}

// someEvents returns n events of all kinds in order of time.
func someEvents(n int) []Event {
	r := rand.New(rand.NewPCG(1, 2))
	events := make([]Event, n)
	now := int64(1e9)
	for i := range events {
		now += r.Int64N(30_000)
		events[i] = Event{Time: now, Kind: Kind(1 + r.IntN(int(kindCount)-1)), CPU: r.Int32N(4), Thread: r.Int32N(1 << 22),
			A: r.Int64N(1 << 22), B: r.Int64N(200) - 100, C: r.Int64N(3), D: r.Int64N(1 << 40)}
	}
	return events
}

func fileOf(t testing.TB, events []Event, tables Tables) []byte {
	var buf bytes.Buffer
	w := must.Have(NewWriter(&buf))(t)
	for _, e := range events {
		must.Do(t, w.Add(e))
	}
	must.Do(t, w.Close(tables))
	return buf.Bytes()
}

func eventsOf(r *Reader) (all []Event, err error) {
	var events []Event
	for {
		if events, err = r.Next(events); err != nil {
			return all, err
		}
		all = append(all, events...)
	}
}

// A reader returns all written events: several blocks, and a last one that is not full.
func TestRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, heldEvents + 5} {
		want := someEvents(n)
		r := must.Have(NewReader(fileOf(t, want, sampleTables)))(t)
		check.True(t, r.HasTables && reflect.DeepEqual(r.Tables, sampleTables), "tables\n%+v\nwant\n%+v", r.Tables, sampleTables)
		got, err := eventsOf(r)
		check.True(t, err == io.EOF && slices.Equal(got, want), "%d events: read %d, %v", n, len(got), err)
	}
}

// Buffers of several CPUs are not in one order of time. An event that comes later than the writer can wait for gets
// the time of the one before it and is counted.
func TestOrder(t *testing.T) {
	want := someEvents(heldEvents + BlockEvents)
	mixed := slices.Clone(want)
	for i := 0; i+100 <= len(mixed); i += 100 {
		slices.Reverse(mixed[i : i+100])
	}
	got, err := eventsOf(must.Have(NewReader(fileOf(t, mixed, Tables{})))(t))
	check.True(t, err == io.EOF && len(got) == len(want) && slices.IsSortedFunc(got, func(a, b Event) int { return int(a.Time - b.Time) }),
		"%d events in another order, %v", len(got), err)
	var buf bytes.Buffer
	w := must.Have(NewWriter(&buf))(t)
	for i, e := range want {
		must.Do(t, w.Add(e))
		check.True(t, i+1 >= heldEvents || buf.Len() == len(Schema)+1, "%d events are encoded before the end", i+1)
	}
	must.Do(t, w.Add(Event{Time: 5, Kind: Refill}))
	must.Do(t, w.Close(Tables{}))
	check.True(t, w.Late == 1 && w.Events == int64(len(want))+1, "%d late of %d events, want 1 of %d", w.Late, w.Events, len(want)+1)
}

func TestState(t *testing.T) {
	s := (DiskWait | InIOWait).InCall(0)
	if n, ok := s.Call(); n != 0 || !ok || s.Class() != DiskWait || s&InIOWait == 0 {
		t.Errorf("state %#x: call %d, %t", s, n, ok)
	}
	if _, ok := DiskWait.Call(); ok {
		t.Error("a state without a call has one")
	}
}

// A recorder that was killed leaves whole blocks, one that ended early an incomplete last one.
func TestCutFile(t *testing.T) {
	events := someEvents(3 * BlockEvents)
	data := fileOf(t, events, sampleTables)
	for _, n := range []int{len(Schema) + 1, len(data) / 2, len(data) - 1} {
		r := must.Have(NewReader(data[:n]))(t)
		got, err := eventsOf(r)
		check.True(t, err == io.EOF && len(got)%BlockEvents == 0 && slices.Equal(got, events[:len(got)]) && !r.HasTables,
			"cut at %d of %d: %d events, tables %t, %v", n, len(data), len(got), r.HasTables, err)
	}
}

// Kinds, columns and blocks of a later writer are skipped.
func TestLaterWriter(t *testing.T) {
	w := &Writer{}
	*w = *must.Have(NewWriter(io.Discard))(t)
	var buf bytes.Buffer
	buf.WriteString(Schema + "\n")
	w.w = &buf
	row := []int64{100, 77, 0, 9, 1, 2, 3, 4, 5, 6} // a kind and two columns that this version does not know
	w.raw = binary.AppendUvarint(nil, uint64(len(row)))
	columns := make([][]byte, len(row))
	for i, v := range row {
		columns[i] = binary.AppendVarint(columns[i], v)
		if i == 1 {
			v = int64(Refill)
		} else if i == 0 {
			v = 20
		}
		columns[i] = binary.AppendVarint(columns[i], v)
		w.raw = binary.AppendUvarint(w.raw, uint64(len(columns[i])))
	}
	w.raw = append(w.raw, bytes.Join(columns, nil)...)
	must.Do(t, w.writeBlock(eventBlock, 2))
	w.raw = []byte("later")
	must.Do(t, w.writeBlock('Z', 1<<30))
	w.raw = []byte(`{"later":{"x":1}}` + "\n" + `{"recording":{"start_ns":1,"end_ns":2,"pid":3,"cpus":4,"later":5}}`)
	must.Do(t, w.writeBlock(tableBlock, 2))
	r := must.Have(NewReader(buf.Bytes()))(t)
	got, err := eventsOf(r)
	if want := []Event{{Time: 120, Kind: Refill, Thread: 9, A: 1, B: 2, C: 3, D: 4}}; err != io.EOF || !slices.Equal(got, want) || r.Tables.CPUs != 4 {
		t.Errorf("%+v, %+v, %v; want %+v", got, r.Tables, err, want)
	}
}

// header returns a block's header and content.
func header(kind byte, rows, unpacked uint32, packed string) string {
	b := []byte{kind}
	for _, n := range []uint32{rows, unpacked, uint32(len(packed))} {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	return string(b) + packed
}

func TestBadInput(t *testing.T) {
	for name, c := range map[string]struct{ data, want string }{
		"empty":          {"", "first line"},
		"later":          {"whylate.kernel/v2\n", "newer whylate"},
		"many rows":      {header('E', BlockEvents+1, 10, "x"), "claims"},
		"large block":    {header('E', 1, maxBlock+1, "x"), "claims"},
		"large tables":   {header('T', 1, maxTables+1, "x"), "claims"},
		"large file":     {strings.Repeat(header('E', 1, maxBlock, "x"), MaxUnpacked/maxBlock+1), "more than 256 MiB"},
		"no compression": {header('E', 1, 20, strings.Repeat("\xff", 20)), "unpacking"},
		"a bomb":         {header('E', 1, maxBlock, "\x00"), "cannot unpack"},
	} {
		data := c.data
		if strings.HasPrefix(data, "E") || strings.HasPrefix(data, "T") {
			data = Schema + "\n" + data
		}
		r, err := NewReader([]byte(data))
		if err == nil {
			_, err = eventsOf(r)
		}
		check.True(t, errors.Is(err, ErrFormat) && strings.Contains(err.Error(), c.want), "%s: %v, want %q", name, err, c.want)
	}
}

// FuzzReader: no input makes the reader panic or take memory that its length does not explain.
func FuzzReader(f *testing.F) {
	f.Add(fileOf(f, someEvents(50), sampleTables))
	f.Add(fileOf(f, nil, Tables{}))
	f.Add([]byte(Schema + "\n" + header('E', 1, 20, "x")))
	f.Fuzz(func(t *testing.T, data []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, err := NewReader(data)
		if err != nil {
			return
		}
		last := int64(0)
		events := []Event(nil)
		for {
			if events, err = r.Next(events); err != nil {
				break
			}
			for _, e := range events {
				must.True(t, e.Time >= last && e.CPU >= 0, "impossible event %+v after time %d", e, last)
				last = e.Time
			}
		}
		runtime.ReadMemStats(&after)
		// A compressed byte gives at most 1032, and a line of the tables takes some hundred times its length in between.
		if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20+uint64(len(data))*1032*200 {
			t.Fatalf("%d bytes of input took %d of memory", len(data), used)
		}
	})
}
