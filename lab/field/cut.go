package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// beside is how long before and after a window the host's samples are kept: some are taken once a second, and counters mean
// something only as differences.
const beside = 1100 * time.Millisecond

// cut returns a recording of the generations from and on, so many of them, of a recording of Go 1.26: each generation of a trace
// stands for itself, and the flight recorder's traces begin in the middle as well. Samples of the host are those of that time;
// the CPU profile, which is of the whole time and which no report needs, is left out. The profile of allocations stays: of it
// only shares are told.
func cut(recording []byte, from, n int) ([]byte, error) {
	in, err := bundle.New(bytes.NewReader(recording), int64(len(recording)))
	if err != nil {
		return nil, err
	}
	r, size, err := in.Trace()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	trace := make([]byte, size)
	if _, err := io.ReadFull(r, trace); err != nil {
		return nil, err
	}
	rd, err := tracefmt.NewReader(bytes.NewReader(trace), tracefmt.Options{})
	if err != nil {
		return nil, err
	}
	if rd.Minor() < 26 {
		return nil, errors.New("only since Go 1.26 the end of each generation is marked")
	}
	var offsets []int64 // where generations begin, and where the last one ends
	var begins []tracefmt.ClockSnapshot
	for {
		g, err := rd.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		offsets, begins = append(offsets, g.Offset), append(begins, g.Snapshot)
		g.Release()
	}
	offsets = append(offsets, size)
	m := in.Meta()
	begins = append(begins, tracefmt.ClockSnapshot{Mono: begins[0].Mono + uint64(m.GotNS)})
	if from+n >= len(offsets) {
		return nil, fmt.Errorf("there are %d generations", len(offsets)-1)
	}
	start, end := int64(begins[from].Mono), int64(begins[from+n].Mono)
	hosts, err := in.HostSamples()
	if err != nil {
		return nil, err
	}
	if hosts, err = cutHost(hosts, start, end); err != nil {
		return nil, err
	}
	allocs, err := in.AllocsProfile()
	if err != nil {
		return nil, err
	}
	const header = 16
	var b bytes.Buffer
	w, err := bundle.NewWriter(&b, m.Start)
	if err != nil {
		return nil, err
	}
	for _, part := range [][]byte{trace[:header], trace[offsets[from]:offsets[from+n]]} {
		if _, err := w.Write(part); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(w.Add(bundle.NameAllocs, allocs), w.Add(bundle.NameHost, hosts)); err != nil {
		return nil, err
	}
	m.Start = m.Start.Add(time.Duration(start - int64(begins[0].Mono)))
	m.AskedNS, m.WindowNS, m.GotNS = end-start, end-start, end-start
	if err := w.Close(m); err != nil {
		return nil, err
	}
	return stored(b.Bytes())
}

// cutHost keeps the lines of a stretch of time, by the monotonic clock, and what is said once.
func cutHost(lines []byte, start, end int64) ([]byte, error) {
	var out []byte
	for line := range bytes.Lines(lines) {
		var l host.Line
		if err := json.Unmarshal(line, &l); err != nil {
			return nil, err
		}
		once := l.Kind == host.KindStart || l.Kind == host.KindEnd
		if once || l.Kind != host.KindTrace && l.MonoNS >= start-int64(beside) && l.MonoNS <= end+int64(beside) {
			out = append(out, line...)
		}
	}
	return out, nil
}
