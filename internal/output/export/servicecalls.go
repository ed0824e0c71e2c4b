package export

import (
	"cmp"

	"github.com/whylate/whylate/report"
)

// A service is one of those of a report. Times of its groups count from the start of its trace.
type service struct {
	name    string
	startNS int64 // of its trace, after that of the first service
	input   *report.Input
	runtime *report.Runtime
}

// servicesOf returns the services of a report, with the start of their traces relative to the first one's; one without a name if the report has only
// one.
func servicesOf(r *report.Report) []service {
	if len(r.Services) == 0 {
		return []service{{input: &r.Input, runtime: &r.Runtime}}
	}
	out := make([]service, 0, len(r.Services))
	for i := range r.Services {
		s := &r.Services[i]
		x := service{name: s.Name, input: &s.Input, runtime: &s.Runtime}
		switch first := &r.Services[0].Input; {
		case s.Clock != nil:
			x.startNS = s.Clock.OffsetNS
		case s.Input.Start != nil && first.Start != nil:
			x.startNS = s.Input.Start.Sub(*first.Start).Nanoseconds()
		}
		out = append(out, x)
	}
	return out
}

// calledServices returns the names of the services through which a segment's time was spent: first the one that the request's own service called,
// last the one that spent it. It is nil for the request's own service.
func calledServices(s *report.Segment) (out []string) {
	if s.Service == "" {
		return nil
	}
	for i := range s.Via {
		if v := &s.Via[i]; v.Wait == report.WaitPeer && v.Service != "" {
			out = append(out, v.Service)
		}
	}
	return out
}

// A servedCall is the part of a request's path in which a service served a call of it.
type servedCall struct {
	service    string
	parent     int // index of the call that it was made for, -1: the request
	start, end int64
	segments   []int
	reader     uint64 // goroutine of the caller that reads the answer, if it read others during the call
}

// servedCalls returns the calls of other services on a request's path, in order of their start; a parent precedes its children. The goroutine that
// waits for an answer may read answers to others in between: then the call continues. It has ended when another goroutine of the caller does
// something.
func servedCalls(r *report.Request) (out []servedCall) {
	var open []int // calls that end later or may continue, the innermost last
	for i := range r.Segments {
		s := &r.Segments[i]
		services, goroutine := calledServices(s), s.Goroutine
		if len(services) > 0 {
			goroutine = s.ServiceGoroutine
		}
		depth := 0
		for depth < min(len(open), len(services)) && out[open[depth]].service == services[depth] {
			depth++
		}
		if depth < len(open) && depth == len(services) {
			interrupted := &out[open[depth]]
			interrupted.reader = cmp.Or(interrupted.reader, goroutine)
			if goroutine == 0 || goroutine == r.Goroutine && depth == 0 || goroutine != interrupted.reader {
				open = open[:depth]
			}
		} else {
			open = open[:depth]
		}
		for _, name := range services[depth:] {
			call := servedCall{service: name, parent: -1, start: s.StartNS}
			if len(open) > 0 {
				call.parent = open[len(open)-1]
			}
			open = append(open, len(out))
			out = append(out, call)
		}
		for _, k := range open[:len(services)] {
			out[k].end = s.StartNS + s.DurationNS
		}
		if len(services) > 0 {
			innermost := &out[open[len(services)-1]]
			innermost.segments = append(innermost.segments, i)
		}
	}
	return out
}
