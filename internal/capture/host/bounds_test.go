package host

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestSane: each number of a line may be as large as any kernel's, and no number that is less than none, or larger, is taken.
func TestSane(t *testing.T) {
	one := func(change func(l *Line)) bool {
		l := Line{Kind: KindSample, MonoNS: 1}
		change(&l)
		return sane(&l)
	}
	limits := func(name string, most int64, set func(l *Line, v int64)) {
		t.Helper()
		for v, want := range map[int64]bool{0: true, 1: true, most: true, -1: false, most + 1: false} {
			if got := one(func(l *Line) { set(l, v) }); got != want {
				t.Errorf("%s of %d is taken: %v", name, v, got)
			}
		}
	}
	for i, f := range slices.Collect(fields(Line{})) {
		if f.Type == reflect.TypeFor[*int64]() {
			limits(f.Name, maxCounter, func(l *Line, v int64) { reflect.ValueOf(l).Elem().Field(i).Set(reflect.ValueOf(&v)) })
		}
	}
	for i, f := range slices.Collect(fields(Level{})) {
		if f.Type.Kind() == reflect.Int64 {
			limits("a level's "+f.Name, maxCounter, func(l *Line, v int64) {
				l.Levels = make([]Level, 2)
				reflect.ValueOf(&l.Levels[1]).Elem().Field(i).SetInt(v)
			})
		}
	}
	for i, f := range slices.Collect(fields(Socket{})) {
		if f.Type.Kind() == reflect.Int64 && f.Name != "UnackedSegs" { // which nothing adds up
			limits("a socket's "+f.Name, maxCounter, func(l *Line, v int64) {
				l.Sockets = make([]Socket, 2)
				reflect.ValueOf(&l.Sockets[1]).Elem().Field(i).SetInt(v)
			})
		}
	}
	for i := 1; i < 3; i++ { // a thread's number is in no sum
		limits(fmt.Sprint("waited ", i), maxCounter, func(l *Line, v int64) { l.Waited = make([]Waited, 2); l.Waited[1][i] = v })
	}
	for name, set := range map[string]func(l *Line, v int64){
		"mono": func(l *Line, v int64) { l.MonoNS, l.WallNS = v, 1 }, "wall": func(l *Line, v int64) { l.WallNS = v }, "since": func(l *Line, v int64) { l.SinceNS = v },
		"cost": func(l *Line, v int64) { l.CostNS = v }, "interval": func(l *Line, v int64) { l.IntervalNS = v }, "unseen": func(l *Line, v int64) { l.Unseen = v }, "unsure": func(l *Line, v int64) { l.Unsure = int(v) },
	} {
		limits(name, 1<<62, set)
	}
	if one(func(l *Line) { l.Waited = []Waited{{-1, 0, 0}} }) || one(func(l *Line) { l.MonoNS = 0 }) || one(func(l *Line) { l.Held = "asleep" }) {
		t.Error("a thread below 0, no time, or an unknown state is taken")
	}
	for _, h := range []Held{"", HeldStopped, HeldTraced, HeldFrozen} {
		if !one(func(l *Line) { l.Held = h }) {
			t.Errorf("%q is not taken", h)
		}
	}
}

// fields are those of a struct, by number.
func fields(v any) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range reflect.TypeOf(v).NumField() {
			if !yield(reflect.TypeOf(v).Field(i)) {
				return
			}
		}
	}
}

// read reads lines behind a start.
func read(t *testing.T, lines ...Line) *Samples {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	must.Do(t, enc.Encode(Line{Kind: KindStart, Schema: Schema, MonoNS: 1}))
	for i := range lines {
		must.Do(t, enc.Encode(&lines[i]))
	}
	must.Do(t, enc.Encode(Line{Kind: KindSample, MonoNS: 1 << 40}))
	return must.Have(Read(&b))(t)
}

// TestTickRoundTrip: each counter of a sample is written and read under a name of its own, and what was not read stays absent.
func TestTickRoundTrip(t *testing.T) {
	tick := newTick()
	v := reflect.ValueOf(&tick).Elem()
	for i := range v.NumField() {
		if v.Field(i).Kind() == reflect.Int64 && v.Field(i).Int() == Absent {
			v.Field(i).SetInt(int64(1000 + i))
		}
	}
	tick.Mono, tick.Wall, tick.Group, tick.Complete, tick.Threads, tick.Unseen, tick.Held, tick.Waited = 5, 6, 7, true, 8, 9, HeldTraced, []Waited{{1, 2, 3}}
	none := newTick()
	none.Mono = 4
	s := read(t, none.line(), tick.line())
	if !reflect.DeepEqual(s.Points[1], tick) {
		t.Errorf("%+v\nwas written as %+v", s.Points[1], tick)
	}
	if none.Waited = []Waited(nil); len(s.Points) != 3 || fmt.Sprint(s.Points[0]) != fmt.Sprint(none) {
		t.Errorf("%+v\nwas written as %+v", s.Points[0], none)
	}
}

// TestSeconds: a second's figures are those of the line; how many levels are kept is bounded, and their names' length.
func TestSeconds(t *testing.T) {
	l := Line{Kind: KindSecond, MonoNS: 7, Group: 2, MemoryBytes: p(1), StealNS: p(2), MachineNS: p(3), PressureNS: p(4)}
	for i := range 40 {
		l.Levels = append(l.Levels, Level{i, strings.Repeat("g", maxText+i), 5, 6, 7})
	}
	s := read(t, l, Line{Kind: KindSecond, MonoNS: 8})
	if len(s.Seconds) != 2 {
		t.Fatalf("%+v", s.Seconds)
	}
	got := s.Seconds[0]
	if len(got.Levels) != 32 || got.Levels[0].Group != strings.Repeat("g", maxText) || got.Levels[1].Group != strings.Repeat("g", maxText)+"..." || got.Levels[31].Depth != 31 {
		t.Errorf("%d levels, %v", len(got.Levels), got.Levels[1])
	}
	if got.Levels = nil; !reflect.DeepEqual(got, Second{Mono: 7, Group: 2, Memory: 1, Steal: 2, Machine: 3, Pressure: 4}) {
		t.Errorf("%+v", got)
	}
	if got := s.Seconds[1]; got.Memory != Absent || got.Steal != Absent || got.Machine != Absent || got.Pressure != Absent {
		t.Errorf("%+v", got)
	}
}

// TestConnections: what a connection had before the first look is not of the recording, what a later one brings is, and a new one of
// the same ends begins at 0. What was needless is taken from the last segments that were sent again.
func TestConnections(t *testing.T) {
	look := func(mono int64, sockets ...Socket) Line {
		for i := range sockets {
			sockets[i].Local, sockets[i].Remote, sockets[i].State = "10.0.0.1:80", "10.0.0.2:9", "ESTABLISHED"
			if sockets[i].UnackedSegs > 0 {
				sockets[i].Local = "10.0.0.1:81"
			}
		}
		return Line{Kind: KindSockets, MonoNS: mono, SinceNS: mono - 1, Count: len(sockets), Sockets: sockets}
	}
	s := read(t,
		look(10, Socket{Retransmitted: 5, OutOfOrder: 3, Needless: 2}),
		look(20, Socket{Retransmitted: 7, OutOfOrder: 3, Needless: 2, RTTNS: 9, MinRTTNS: 8}, Socket{Retransmitted: 1, UnackedSegs: 1, Peer: true}),
		look(30, Socket{Retransmitted: 7, OutOfOrder: 4, Needless: 3}),
		look(40, Socket{Retransmitted: 1, OutOfOrder: 0, Needless: 0}),
		look(50, Socket{Retransmitted: 1, OutOfOrder: 0, Needless: 9}),
		Line{Kind: KindSockets, MonoNS: 60, Sockets: []Socket{{Local: "nowhere", Remote: "10.0.0.2:9"}}})
	if len(s.Connections) != 2 || s.Most != 2 || s.Looks != 6 || len(s.Warnings) != 1 || !strings.HasPrefix(s.Warnings[0].Text, "1 damaged") {
		t.Fatalf("%d connections, %d at most, %d looks, %v", len(s.Connections), s.Most, s.Looks, s.Warnings)
	}
	for ends, c := range s.Connections {
		want := Connection{State: "ESTABLISHED", Retransmitted: 3, OutOfOrder: 1, Needless: 3, lastRetrans: 1, lastNeedless: 9}
		if ends.Local.Port() == 81 {
			want = Connection{State: "ESTABLISHED", Peer: true, Retransmitted: 1, lastRetrans: 1}
		}
		if *c != want {
			t.Errorf("%v: %+v, want %+v", ends, *c, want)
		}
	}
	var events []string
	for _, e := range s.Events {
		events = append(events, fmt.Sprint(e.Since, e.Mono, e.Conn.Local.Port(), e.Peer, e.Retransmitted, e.OutOfOrder, e.Needless))
	}
	if got, want := strings.Join(events, "; "), "19 20 80 false 0 0 2; 19 20 81 true 1 0 0; 29 30 80 false 0 1 0; 39 40 80 false 0 0 1"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// TestItself: a process that talks to itself is known by both ends, by the count of the recording or by the lists of an older one.
func TestItself(t *testing.T) {
	ends := func(local, remote string, peer bool) Socket { return Socket{Local: local, Remote: remote, Peer: peer} }
	a, b := "127.0.0.1:1", "127.0.0.1:2"
	for name, c := range map[string]struct {
		lines []Line
		want  Itself
	}{
		"counted":       {[]Line{{MonoNS: 5, Own: new(2), Unsure: 1}, {MonoNS: 6, Own: new(1), Unsure: 2}, {MonoNS: 7}}, Itself{First: 5, Last: 6, Own: 2, Unsure: 3}},
		"not counted":   {[]Line{{MonoNS: 5}}, Itself{}},
		"listed":        {[]Line{{MonoNS: 5, All: true, Sockets: []Socket{ends(a, b, false), ends(b, a, false)}}}, Itself{First: 5, Last: 5, Own: 2}},
		"others' end":   {[]Line{{MonoNS: 5, All: true, Sockets: []Socket{ends(a, b, false), ends(b, a, true)}}}, Itself{First: 5, Last: 5}},
		"new meanwhile": {[]Line{{MonoNS: 5, All: true, Sockets: []Socket{ends(a, b, false)}}, {MonoNS: 9, All: true, Sockets: []Socket{ends(a, b, false), ends(b, a, false)}}}, Itself{First: 5, Last: 9, Own: 2, Unsure: 1}},
		"no address":    {[]Line{{MonoNS: 5, All: true, Sockets: []Socket{ends("x", b, false)}}}, Itself{First: 5, Last: 5, Unsure: 1}},
		"bounded":       {[]Line{{MonoNS: 5, Own: new(0), Unsure: maxConnections}, {MonoNS: 6, Own: new(0), Unsure: 9}}, Itself{First: 5, Last: 6, Unsure: maxConnections}},
	} {
		for i := range c.lines {
			c.lines[i].Kind = KindSockets
		}
		got := read(t, c.lines...).Itself
		if got.listed = nil; !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestReaderKeeps: the start's facts, the end's cost and warnings, and when the trace was asked for; texts and lists have a bound.
func TestReaderKeeps(t *testing.T) {
	long := strings.Repeat("é", maxText)
	var warnings []bundle.Warning
	for range 60 {
		warnings = append(warnings, bundle.Warning{Code: long, Text: "x"})
	}
	waited := make([]Waited, maxWaited+5)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for _, l := range []Line{
		{Kind: KindStart, Schema: Schema, MonoNS: 1, PID: 7, IntervalNS: 8, States: true, Facts: &bundle.Host{Kernel: long, Go: "go1.26"}},
		{Kind: KindSample, MonoNS: 2, Waited: waited}, {Kind: KindSample, MonoNS: 2, Threads: 3},
		{Kind: KindTrace, MonoNS: 3, WallNS: 4}, {Kind: KindEnd, MonoNS: 5, CostNS: 6, Warnings: warnings},
	} {
		must.Do(t, enc.Encode(l))
	}
	s := must.Have(Read(&b))(t)
	if s.PID != 7 || s.IntervalNS != 8 || !s.States || s.CostNS != 6 || s.Facts.Go != "go1.26" || len(s.Facts.Kernel) > maxText+3 || !strings.HasSuffix(s.Facts.Kernel, "é...") {
		t.Errorf("%+v", s)
	}
	if len(s.Warnings) != 50 || len(s.Warnings[0].Code) > maxText+3 || len(s.Points) != 1 || len(s.Points[0].Waited) != maxWaited {
		t.Errorf("%d warnings, %d samples", len(s.Warnings), len(s.Points))
	}
	if s.Traced == nil || s.Traced.Mono != 3 || s.Traced.Wall != 4 {
		t.Errorf("%+v", s.Traced)
	}
}

// TestLineBounds: a line of just the longest is read, a longer one left out; blank lines are no damage.
func TestLineBounds(t *testing.T) {
	start, sample := fmt.Sprintf(`{"kind":"start","schema":%q,"mono_ns":1}`+"\n", Schema), `{"kind":"sample","mono_ns":2}`
	for more, damaged := range map[int]int{-1: 0, 0: 0, 1: 1} {
		pad := strings.Repeat(" ", maxLine-len(sample)-1+more)
		s := must.Have(Read(strings.NewReader(start + "\r\n\n" + sample + pad + "\n" + `{"kind":"sample","mono_ns":3}` + "\r\n")))(t)
		if len(s.Points) != 2-damaged || len(s.Warnings) != damaged {
			t.Errorf("%d more than the longest: %d samples, %v", more, len(s.Points), s.Warnings)
		}
	}
}

// TestLogSeconds: of a long recording's seconds neighbours are left out, evenly, and no other line.
func TestLogSeconds(t *testing.T) {
	var l log
	l.lines = append(l.lines, Line{Kind: KindMark, MonoNS: 1})
	for i := range 3 * maxSeconds {
		l.second(Line{Kind: KindSecond, MonoNS: int64(i)})
	}
	last, n := int64(-1), 0
	for _, x := range l.lines {
		if x.Kind == KindSecond {
			if gap := x.MonoNS - last; n > 0 && (gap < int64(l.secondsAre) || gap >= 2*int64(l.secondsAre)) {
				t.Fatalf("from %d to %d, one of %d is kept", last, x.MonoNS, l.secondsAre)
			}
			last = x.MonoNS
			n++
		}
	}
	if l.lines[0].Kind != KindMark || n != l.seconds || n < maxSeconds/2 || n >= maxSeconds || l.secondsAre != 4 {
		t.Errorf("%d seconds are kept, %d are counted, one of %d", n, l.seconds, l.secondsAre)
	}
}
