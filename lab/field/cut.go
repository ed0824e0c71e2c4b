package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/capture/rewrite"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// cut returns a recording of n generations after the first from.
func cut(recording []byte, from, n int) ([]byte, error) {
	in, err := bundle.New(bytes.NewReader(recording), int64(len(recording)))
	if err != nil {
		return nil, err
	}
	begins, err := generationsOf(in)
	if err != nil {
		return nil, err
	}
	if from+n > len(begins) {
		return nil, fmt.Errorf("there are %d generations", len(begins))
	}
	to := time.Duration(0) // the end
	if from+n < len(begins) {
		to = begins[from+n] - begins[0]
	}
	trace, _, err := in.Trace()
	if err != nil {
		return nil, err
	}
	defer trace.Close()
	var b bytes.Buffer
	if _, err := rewrite.Cut(&b, &rewrite.Source{Name: "the recording", Trace: trace, Bundle: in}, begins[from]-begins[0], to); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// generationsOf returns the start of each generation of a recording, by the trace's clock.
func generationsOf(in *bundle.Bundle) (begins []time.Duration, err error) {
	trace, _, err := in.Trace()
	if err != nil {
		return nil, err
	}
	defer trace.Close()
	rd, err := tracefmt.NewReader(trace, tracefmt.Options{})
	if err != nil {
		return nil, err
	}
	for {
		g, err := rd.Next()
		if errors.Is(err, io.EOF) {
			return begins, nil
		}
		if err != nil {
			return nil, err
		}
		begins = append(begins, time.Duration(tracefmt.NewScale(g.Freq).NS(g.MinTime)))
		g.Release()
	}
}
