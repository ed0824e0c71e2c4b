package host

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestIsPlausible: each number of a line may be as large as on any kernel; negative and larger numbers
// are refused.
func TestIsPlausible(t *testing.T) {
	isTaken := func(change func(l *Line)) bool {
		l := Line{Kind: KindSample, Sample: Sample{MonoNS: 1}}
		change(&l)
		return isPlausible(&l)
	}
	checkLimits := func(name string, limit int64, set func(l *Line, v int64)) {
		t.Helper()
		for v, want := range map[int64]bool{0: true, 1: true, limit: true, -1: false, limit + 1: false} {
			check.Equal(t, isTaken(func(l *Line) { set(l, v) }), want, "%s of %d is taken", name, v)
		}
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Line]()) {
		if f.Type == reflect.TypeFor[*int64]() {
			checkLimits(f.Name, maxCounter, func(l *Line, v int64) { reflect.ValueOf(l).Elem().FieldByIndex(f.Index).Set(reflect.ValueOf(&v)) })
		}
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Level]()) {
		if f.Type.Kind() == reflect.Int64 {
			checkLimits("a level's "+f.Name, maxCounter, func(l *Line, v int64) {
				l.Levels = make([]Level, 2)
				reflect.ValueOf(&l.Levels[1]).Elem().FieldByIndex(f.Index).SetInt(v)
			})
		}
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Socket]()) {
		if f.Type.Kind() == reflect.Int64 && f.Name != "UnackedSegs" { // which nothing adds up
			checkLimits("a socket's "+f.Name, maxCounter, func(l *Line, v int64) {
				l.Sockets = make([]Socket, 2)
				reflect.ValueOf(&l.Sockets[1]).Elem().FieldByIndex(f.Index).SetInt(v)
			})
		}
	}
	for i := 1; i < 3; i++ { // a thread's number is in no sum
		checkLimits(fmt.Sprint("waited ", i), maxCounter, func(l *Line, v int64) { l.ThreadWaits = make([]ThreadWait, 2); l.ThreadWaits[1][i] = v })
	}
	for name, set := range map[string]func(l *Line, v int64){
		"mono": func(l *Line, v int64) { l.MonoNS, l.WallNS = v, 1 }, "wall": func(l *Line, v int64) { l.WallNS = v }, "since": func(l *Line, v int64) { l.SinceNS = v },
		"cost": func(l *Line, v int64) { l.CostNS = v }, "interval": func(l *Line, v int64) { l.IntervalNS = v }, "unseen": func(l *Line, v int64) { l.UnattributedRetransmits = v }, "unsure": func(l *Line, v int64) { l.UnsureConnections = int(v) },
	} {
		checkLimits(name, 1<<62, set)
	}
	if isTaken(func(l *Line) { l.ThreadWaits = []ThreadWait{{-1, 0, 0}} }) || isTaken(func(l *Line) { l.MonoNS = 0 }) || isTaken(func(l *Line) { l.HaltReason = "asleep" }) {
		t.Error("a thread below 0, no time, or an unknown state is taken")
	}
	for _, h := range []HaltReason{"", HaltedBySignal, HaltedByDebugger, HaltedByFreezer} {
		check.True(t, isTaken(func(l *Line) { l.HaltReason = h }), "%q is not taken", h)
	}
}

// read reads lines behind a start.
func read(t *testing.T, lines ...Line) *Samples {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	must.Do(t, enc.Encode(Line{Kind: KindStart, Schema: Schema, Sample: Sample{MonoNS: 1}}))
	for i := range lines {
		must.Do(t, enc.Encode(&lines[i]))
	}
	must.Do(t, enc.Encode(Line{Kind: KindSample, Sample: Sample{MonoNS: 1 << 40}}))
	return must.Have(Read(&b))(t)
}

// TestSampleRoundTrip: each counter of a sample has its own JSON name, and a counter that was not read
// stays absent.
func TestSampleRoundTrip(t *testing.T) {
	all := Sample{MonoNS: 5, WallNS: 6, GroupIndex: 7, AncestorsComplete: true, Threads: 8, UnattributedRetransmits: 9, HaltReason: HaltedByDebugger, ThreadWaits: []ThreadWait{{1, 2, 3}}, Levels: []Level{{1, "g", 2, 3, 4}}}
	v := reflect.ValueOf(&all).Elem()
	for i := range v.NumField() {
		if v.Field(i).Type() == reflect.TypeFor[*int64]() {
			v.Field(i).Set(reflect.ValueOf(p(int64(1000 + i))))
		}
		check.False(t, v.Field(i).IsZero(), "%s is not tried", v.Type().Field(i).Name)
	}
	empty := Sample{MonoNS: 4}
	s := read(t, Line{Kind: KindSample, Sample: empty}, Line{Kind: KindSample, Sample: all})
	check.True(t, len(s.Points) == 3 && reflect.DeepEqual(s.Points[:2], []Sample{empty, all}),
		"%+v\nand %+v\nwere written as %+v", empty, all, s.Points)
}

// TestSeconds: the counters of a second are those of the line; the number of levels and the length of
// their names are bounded.
func TestSeconds(t *testing.T) {
	l := Line{Kind: KindSecond, Sample: Sample{MonoNS: 7, GroupIndex: 2, MemoryBytes: p(1), StealNS: p(2), MachineCPUNS: p(3), PressureNS: p(4)}}
	for i := range 40 {
		l.Levels = append(l.Levels, Level{i, strings.Repeat("g", maxText+i), 5, 6, 7})
	}
	s := read(t, l, Line{Kind: KindSecond, Sample: Sample{MonoNS: 8}})
	must.Equal(t, len(s.Seconds), 2, "%+v", s.Seconds)
	got := s.Seconds[0]
	if len(got.Levels) != 32 || got.Levels[0].GroupPath != strings.Repeat("g", maxText) || got.Levels[1].GroupPath != strings.Repeat("g", maxText)+"..." || got.Levels[31].Depth != 31 {
		t.Errorf("%d levels, %v", len(got.Levels), got.Levels[1])
	}
	if got.Levels = nil; !reflect.DeepEqual(got, Sample{MonoNS: 7, GroupIndex: 2, MemoryBytes: p(1), StealNS: p(2), MachineCPUNS: p(3), PressureNS: p(4)}) {
		t.Errorf("%+v", got)
	}
	if got := s.Seconds[1]; !reflect.DeepEqual(got, Sample{MonoNS: 8}) {
		t.Errorf("%+v", got)
	}
}

// TestConnections: segments before the first poll do not count, segments of later polls do, and a new
// connection between the same ends starts at 0. Spurious retransmissions are subtracted from the
// latest retransmissions.
func TestConnections(t *testing.T) {
	pollLine := func(mono int64, sockets ...Socket) Line {
		for i := range sockets {
			sockets[i].Local, sockets[i].Remote, sockets[i].State = "10.0.0.1:80", "10.0.0.2:9", "ESTABLISHED"
			if sockets[i].UnackedSegs > 0 {
				sockets[i].Local = "10.0.0.1:81"
			}
		}
		return Line{Kind: KindSockets, Sample: Sample{MonoNS: mono}, SinceNS: mono - 1, SocketCount: len(sockets), Sockets: sockets}
	}
	s := read(t,
		pollLine(10, Socket{Retransmitted: 5, OutOfOrder: 3, Spurious: 2}),
		pollLine(20, Socket{Retransmitted: 7, OutOfOrder: 3, Spurious: 2, RTTNS: 9, MinRTTNS: 8}, Socket{Retransmitted: 1, UnackedSegs: 1, Peer: true}),
		pollLine(30, Socket{Retransmitted: 7, OutOfOrder: 4, Spurious: 3}),
		pollLine(40, Socket{Retransmitted: 1, OutOfOrder: 0, Spurious: 0}),
		pollLine(50, Socket{Retransmitted: 1, OutOfOrder: 0, Spurious: 9}),
		Line{Kind: KindSockets, Sample: Sample{MonoNS: 60}, Sockets: []Socket{{Local: "nowhere", Remote: "10.0.0.2:9"}}})
	if len(s.Connections) != 2 || s.MaxConnections != 2 || s.SocketPolls != 6 || len(s.Warnings) != 1 || !strings.HasPrefix(s.Warnings[0].Text, "1 damaged") {
		t.Fatalf("%d connections, %d at most, %d looks, %v", len(s.Connections), s.MaxConnections, s.SocketPolls, s.Warnings)
	}
	for ends, c := range s.Connections {
		last := Socket{Local: ends.Local.String(), Remote: ends.Remote.String(), State: "ESTABLISHED", Retransmitted: 1, Spurious: 9}
		want := Connection{Last: last, Retransmitted: 3, OutOfOrder: 1, Spurious: 3}
		if ends.Local.Port() == 81 {
			last.Spurious, last.UnackedSegs, last.Peer = 0, 1, true
			want = Connection{Last: last, Peer: true, Retransmitted: 1}
		}
		if *c != want {
			t.Errorf("%v: %+v, want %+v", ends, *c, want)
		}
	}
	var events []string
	for _, e := range s.Events {
		events = append(events, fmt.Sprint(e.PreviousPoll, e.Poll, e.Ends.Local.Port(), e.Peer, e.Retransmitted, e.OutOfOrder, e.Spurious))
	}
	if got, want := strings.Join(events, "; "), "19 20 80 false 0 0 2; 19 20 81 true 1 0 0; 29 30 80 false 0 1 0; 39 40 80 false 0 0 1"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// TestSelfConnections: a process that is connected to itself is found by the recorded count, or, in
// older recordings, by the lists of sockets.
func TestSelfConnections(t *testing.T) {
	ends := func(local, remote string, peer bool) Socket { return Socket{Local: local, Remote: remote, Peer: peer} }
	a, b := "127.0.0.1:1", "127.0.0.1:2"
	for name, c := range map[string]struct {
		lines []Line
		want  SelfConnections
	}{
		"counted":              {[]Line{{Sample: Sample{MonoNS: 5}, SelfSockets: new(2), UnsureConnections: 1}, {Sample: Sample{MonoNS: 6}, SelfSockets: new(1), UnsureConnections: 2}, {Sample: Sample{MonoNS: 7}}}, SelfConnections{FirstPoll: 5, LastPoll: 6, MaxSockets: 2, UnsureConnections: 3}},
		"not counted":          {[]Line{{Sample: Sample{MonoNS: 5}}}, SelfConnections{}},
		"listed":               {[]Line{{Sample: Sample{MonoNS: 5}, ListsAll: true, Sockets: []Socket{ends(a, b, false), ends(b, a, false)}}}, SelfConnections{FirstPoll: 5, LastPoll: 5, MaxSockets: 2}},
		"others' end":          {[]Line{{Sample: Sample{MonoNS: 5}, ListsAll: true, Sockets: []Socket{ends(a, b, false), ends(b, a, true)}}}, SelfConnections{FirstPoll: 5, LastPoll: 5}},
		"opened between lists": {[]Line{{Sample: Sample{MonoNS: 5}, ListsAll: true, Sockets: []Socket{ends(a, b, false)}}, {Sample: Sample{MonoNS: 9}, ListsAll: true, Sockets: []Socket{ends(a, b, false), ends(b, a, false)}}}, SelfConnections{FirstPoll: 5, LastPoll: 9, MaxSockets: 2, UnsureConnections: 1}},
		"no address":           {[]Line{{Sample: Sample{MonoNS: 5}, ListsAll: true, Sockets: []Socket{ends("x", b, false)}}}, SelfConnections{FirstPoll: 5, LastPoll: 5, UnsureConnections: 1}},
		"bounded":              {[]Line{{Sample: Sample{MonoNS: 5}, SelfSockets: new(0), UnsureConnections: maxConnections}, {Sample: Sample{MonoNS: 6}, SelfSockets: new(0), UnsureConnections: 9}}, SelfConnections{FirstPoll: 5, LastPoll: 6, UnsureConnections: maxConnections}},
	} {
		for i := range c.lines {
			c.lines[i].Kind = KindSockets
		}
		got := read(t, c.lines...).SelfConnections
		if got.firstEnds = nil; !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestReaderKeeps: Read returns the facts of the start, the cost and warnings of the end, and the time
// of the request for the trace, with bounded texts and lists.
func TestReaderKeeps(t *testing.T) {
	long := strings.Repeat("é", maxText)
	var warnings []bundle.Warning
	for range 60 {
		warnings = append(warnings, bundle.Warning{Code: long, Text: "x"})
	}
	waited := make([]ThreadWait, maxWaited+5)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for _, l := range []Line{
		{Kind: KindStart, Schema: Schema, Sample: Sample{MonoNS: 1}, PID: 7, IntervalNS: 8, HasStates: true, Facts: &bundle.Host{Kernel: long, Go: "go1.26"}},
		{Kind: KindSample, Sample: Sample{MonoNS: 2, ThreadWaits: waited}}, {Kind: KindSample, Sample: Sample{MonoNS: 2, Threads: 3}},
		{Kind: KindTrace, Sample: Sample{MonoNS: 3, WallNS: 4}}, {Kind: KindEnd, Sample: Sample{MonoNS: 5}, CostNS: 6, Warnings: warnings},
	} {
		must.Do(t, enc.Encode(l))
	}
	s := must.Have(Read(&b))(t)
	if s.PID != 7 || s.IntervalNS != 8 || !s.HasStates || s.CostNS != 6 || s.Facts.Go != "go1.26" || len(s.Facts.Kernel) > maxText+3 || !strings.HasSuffix(s.Facts.Kernel, "é...") {
		t.Errorf("%+v", s)
	}
	check.True(t, len(s.Warnings) == 50 && len(s.Warnings[0].Code) <= maxText+3 && len(s.Points) == 1 && len(s.Points[0].ThreadWaits) == maxWaited,
		"%d warnings, %d samples", len(s.Warnings), len(s.Points))
	check.True(t, s.TraceRequest != nil && s.TraceRequest.MonoNS == 3 && s.TraceRequest.WallNS == 4, "%+v", s.TraceRequest)
}

// TestLineBounds: Read accepts a line of the maximum length and skips a longer one. Blank lines are
// not damage.
func TestLineBounds(t *testing.T) {
	start, sample := fmt.Sprintf(`{"kind":"start","schema":%q,"mono_ns":1}`+"\n", Schema), `{"kind":"sample","mono_ns":2}`
	for extra, damaged := range map[int]int{-1: 0, 0: 0, 1: 1} {
		pad := strings.Repeat(" ", maxLine-len(sample)-1+extra)
		s := must.Have(Read(strings.NewReader(start + "\r\n\n" + sample + pad + "\n" + `{"kind":"sample","mono_ns":3}` + "\r\n")))(t)
		check.True(t, len(s.Points) == 2-damaged && len(s.Warnings) == damaged,
			"%d more than the longest: %d samples, %v", extra, len(s.Points), s.Warnings)
	}
}

// TestLogSeconds: a long recording drops seconds evenly, but never the newest one, and keeps all other
// lines.
func TestLogSeconds(t *testing.T) {
	l := sampleLog{otherLines: []Line{{Kind: KindMark, Sample: Sample{MonoNS: 1}}}}
	const n = 3*maxSeconds + 1
	for i := range n {
		l.seconds.add(Sample{MonoNS: int64(i)}, maxSeconds)
		if samples := l.seconds.samples; samples[len(samples)-1].MonoNS != int64(i) {
			t.Fatalf("the newest of %d is %d", i+1, samples[len(samples)-1].MonoNS)
		}
	}
	samples, stride := l.seconds.samples, int64(l.seconds.stride)
	for i := 1; i < len(samples)-1; i++ {
		if gap := samples[i].MonoNS - samples[i-1].MonoNS; gap < stride/2 || gap > stride {
			t.Fatalf("from %d to %d with stride %d", samples[i-1].MonoNS, samples[i].MonoNS, stride)
		}
	}
	check.True(t, len(samples) >= maxSeconds/2 && len(samples) < maxSeconds && stride == 4,
		"%d seconds retained, stride %d", len(samples), stride)
	check.Equal(t, bytes.Count(l.encode(Line{}, Line{}), []byte("\n")), len(samples)+3, "lines")
}
