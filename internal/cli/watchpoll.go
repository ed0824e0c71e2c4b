package cli

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/judge/watch"
	"github.com/whylate/whylate/report"
)

// maxPollBytes bounds a poll's recording: a second of a very busy service with 30 cores.
const maxPollBytes = 256 << 20

// send sends an event. It is false if ctx ended before the event was received.
func send(ctx context.Context, events chan<- event, e event) bool {
	select {
	case events <- e:
		return true
	case <-ctx.Done():
		return false
	}
}

// follow polls service i until ctx ends, the number of polls is reached or the service is given up, and sends an event before and after each poll.
// dir is for its recordings. Only this goroutine changes the service's state w, between two events.
func (v *watchFlags) follow(ctx context.Context, s *streams, i int, w *watchedService, dir string, turn chan struct{}, events chan<- event) {
	answers := 0
	var result pollResult
	for ctx.Err() == nil {
		begin := time.Now()
		// The last recording is kept during the next poll.
		file := filepath.Join(dir, fmt.Sprintf("%d-%d%s", i, answers%2, record.BundleExt))
		look := v.poll(ctx, s, i, w, file, turn, events)
		if ctx.Err() != nil {
			return
		}
		wait := w.state.Add(look, rand.Float64())
		next := time.Now().Add(wait)
		doing := "trying again"
		if look.Report != nil {
			next, doing = begin.Add(wait), "next look"
			if next.Before(time.Now()) {
				next = time.Now()
			}
			result.file = file
			answers++
		}
		result.state = w.state.State()
		result.last, result.before = w.state.Reports()
		sent := result
		e := event{service: i, doing: doing, doingUntil: next, result: &sent, done: v.polls > 0 && (answers >= v.polls || hasGivenUp(&result.state, look.Busy))}
		if e.done {
			e.doing, e.doingUntil = "done", time.Time{}
		}
		if !send(ctx, events, e) || e.done {
			return
		}
		select {
		case <-time.After(time.Until(next)):
		case <-ctx.Done():
		}
	}
}

// hasGivenUp reports whether a service that failed to answer several polls in succession is considered lost, so that a run with a number of polls
// ends. busy says that another program is tracing it: then it takes about a minute.
func hasGivenUp(s *watch.State, busy bool) bool {
	const tries, minute = 5, 30 // while another program is tracing, there is a poll every 2 s
	if busy {
		return s.Failures >= minute
	}
	return s.Failures >= tries
}

// pollTimeoutSlack is the additional time of a poll, for a trace that arrives over a slow connection.
const pollTimeoutSlack = 10 * time.Second

// poll records service i into the file, and explains the recording. A failure is in the result's Problem. turn limits how many services are explained
// at a time. It ends however slowly the service answers.
func (v *watchFlags) poll(ctx context.Context, s *streams, i int, w *watchedService, file string, turn chan struct{}, events chan<- event) watch.Poll {
	failed := func(err error) watch.Poll {
		l := watch.Poll{Time: time.Now(), Problem: command.OneLine(err.Error())}
		if re, ok := errors.AsType[*record.Error](err); ok {
			l.Busy = re.Kind == record.Busy
			l.Problem = command.OneLine(re.Text)
			if re.Remedy != "" {
				l.Problem += ": " + command.OneLine(re.Remedy)
			}
		}
		return l
	}
	out := watch.Poll{}
	size, err := int64(0), error(nil)
	if !w.trace {
		send(ctx, events, event{service: i, doing: "taking a snapshot"})
		named, _ := record.MayServeFlight(w.target)
		size, err = saveFlight(ctx, w.target, w.opt, file, named || w.flight)
		switch {
		case err == nil:
			out.Snapshot, out.Bytes, w.flight = true, size, true
		case named || isUnreachable(err) || ctx.Err() != nil:
			return failed(err)
		default:
			var e *record.Error
			// A recorder that is temporarily off is asked again at the next poll, but any other answer means that the service has none.
			w.trace = !errors.As(err, &e) || e.Kind != record.Empty
		}
	}
	if !out.Snapshot {
		send(ctx, events, event{service: i, doing: "tracing"})
		tracing, cancel := context.WithTimeout(ctx, v.window+w.opt.Grace+pollTimeoutSlack)
		res, err := record.Save(tracing, w.target, w.opt, file, readBuild().Version, nil)
		late := tracing.Err() != nil && ctx.Err() == nil
		cancel()
		if late && (res == nil || !res.HasGeneration) {
			return failed(fmt.Errorf("no trace arrived within %v: the service is stuck or very slow (--timeout allows more time)", v.window+w.opt.Grace+pollTimeoutSlack))
		}
		if res == nil {
			return failed(err)
		}
		out.Bytes, out.Window = res.Bytes, res.Received
		if err != nil {
			var re *record.Error
			if out.Note = command.OneLine(err.Error()); errors.As(err, &re) {
				out.Note = command.OneLine(re.Text)
			}
		}
		if !res.HasGeneration {
			return failed(errors.New(out.Note + "; it cannot be analysed"))
		}
	}
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return failed(ctx.Err())
	}
	send(ctx, events, event{service: i, doing: "explaining"})
	if out.Report, err = v.explainFile(ctx, s, file, 0); err == nil && out.Snapshot {
		out.Report, out.ShownPart, err = v.explainNewPart(ctx, s, w, file, out.Report)
	}
	if err != nil {
		return failed(err)
	}
	out.Time = time.Now()
	out.Report.Input.Name = w.host
	return out
}

// explainNewPart returns the report and the duration of the part of a snapshot that the last one does not contain, and stores the snapshot's end in w
// for the next call; of the whole snapshot if none of it is known to be old. file and rep are the whole snapshot and its report.
func (v *watchFlags) explainNewPart(ctx context.Context, s *streams, w *watchedService, file string, rep *report.Report) (*report.Report, time.Duration, error) {
	all := time.Duration(rep.Input.DurationNS)
	if rep.Input.Start == nil {
		return rep, all, nil
	}
	before := w.lastSnapshotEnd
	w.lastSnapshotEnd = rep.Input.Start.Add(all)
	from := before.Sub(*rep.Input.Start)
	if before.IsZero() || from <= 0 || from >= all {
		return rep, all, nil // the first snapshot, or the service was restarted, or its clock was set
	}
	rep, err := v.explainFile(ctx, s, file, from)
	return rep, all - from, err
}

// explainFile explains the recording in a file, without requests that end before from (since the trace's start).
func (v *watchFlags) explainFile(ctx context.Context, s *streams, file string, from time.Duration) (*report.Report, error) {
	in, err := s.openInput(ctx, file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	e := v.explainFlags
	e.options.From = from
	rep, err := e.explain(ctx, in)
	if err != nil {
		return nil, err
	}
	return rep, nil
}

// saveFlight saves the recording of the flight recorder at a target to the file name and returns its size in bytes. Unless the
// target is known to have one (sure), it waits only a short time.
func saveFlight(ctx context.Context, target string, opt record.Options, name string, sure bool) (int64, error) {
	timeout := opt.Grace + pollTimeoutSlack
	if !sure {
		timeout = flightTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return record.SaveFlight(ctx, target, opt, name, nil)
}
