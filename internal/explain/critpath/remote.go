package critpath

// A RemoteAnswer is a request of another process that answers a network wait of this one, on this trace's clock. Package
// exchange finds it.
type RemoteAnswer struct {
	Start, End int64
	G          uint64 // the goroutine that served it
	// Sender is the goroutine of this process that sent the call, and Sent when it did so at the latest; 0: unknown.
	Sender uint64
	Sent   int64
	// Service and Group identify the group of the request.
	Service, Group string
	// Offset is added to the times of Parts to convert them to this trace's clock. Parts cover the request.
	Offset int64
	Parts  []RemotePart
	// WayCause is the cause of the time on the way there and back.
	WayCause int32
}

// A RemotePart is a part of a remote answer with one cause. It ends at End, on the other trace's clock, and starts where the
// part before ends. Causes are numbered by package exchange, from 1 on.
type RemotePart struct {
	End   int64
	G     uint64 // the goroutine of the service that spent it; 0: unknown
	Cause int32
}

// EachPart calls f with each part of the answer that overlaps [from, to), cut to it; times are on this trace's clock.
func (a *RemoteAnswer) EachPart(from, to int64, f func(start, end int64, part *RemotePart)) {
	start := a.Start
	for i := range a.Parts {
		p := &a.Parts[i]
		end := min(p.End+a.Offset, a.End)
		if s, e := max(start, from), min(end, to); s < e {
			f(s, e, p)
		}
		start = max(start, end)
	}
}

// findRemoteAnswer returns the request of another process that answers a network wait from start to end; nil if none is known,
// or if the wait is for a client.
func (w *Walker) findRemoteAnswer(frame *walkFrame, v *waitVerdict, start, end int64) *RemoteAnswer {
	if w.RemoteAnswerTo == nil || v.step.Kind != Network || v.followWaker || v.step.Inbound {
		return nil
	}
	waiter := frame.g
	if frame.followedWait >= 0 {
		waiter = w.FollowedWaits[frame.followedWait].G
	}
	return w.RemoteAnswerTo(frame.g, waiter, start, end)
}

// emitRemoteAnswer adds the steps of a network wait that a request of another process answers, backward in time: the answer's
// way back, the serving of the request (Remote), and the call's way there. It moves the cursor back to start, or enters the sender
// where that is known, whose time before the call was sent is the wait's, and returns true. v is the verdict on the wait.
func (w *Walker) emitRemoteAnswer(frame walkFrame, v *waitVerdict, start int64, cursor *int64, answer *RemoteAnswer) (entered bool) {
	if v.pollGapStart != 0 { // the answer was not there before the request ended
		gap := v.step
		gap.Kind = PollGap
		w.emitStep(cursor, max(v.pollGapStart, min(answer.End, *cursor), start), gap)
	}
	way := v.step
	way.Remote = answer
	w.emitStep(cursor, max(answer.End, start), way)
	serving := way
	serving.Kind = Remote
	w.emitStep(cursor, max(answer.Start, start), serving)
	w.emitStep(cursor, max(answer.Sent, start), way)
	if answer.Sender == 0 || start >= *cursor || len(w.frames) >= maxNesting || !w.enterGoroutine(answer.Sender, start, *cursor, frame.followedWait) {
		w.emitStep(cursor, start, way)
		return false
	}
	w.inheritAnswers(frame)
	return true
}

// WithoutRemotes joins the steps of each remote answer to the one network wait that they were divided from. It changes and
// returns the slice.
func WithoutRemotes(steps []Step) []Step {
	first := 0
	for first < len(steps) && steps[first].Remote == nil {
		first++
	}
	out := steps[:first]
	for i := first; i < len(steps); i++ {
		if n := len(out); n > 0 && steps[i].Remote != nil && out[n-1].Remote == steps[i].Remote && out[n-1].End == steps[i].Start {
			out[n-1].End = steps[i].End
			continue
		}
		out = append(out, steps[i])
		if out[len(out)-1].Kind == Remote {
			out[len(out)-1].Kind = Network
		}
	}
	return out
}
