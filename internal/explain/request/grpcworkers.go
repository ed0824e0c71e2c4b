package request

import (
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A grpcWorker serves one gRPC stream after the other.
type grpcWorker struct {
	openRequest
	busy      bool
	idleSince int64 // when its wait for work began
}

// grpcWorkerSource finds the streams of gRPC servers that use grpc.NumStreamWorkers. A worker gets work only while it
// waits, so there is exactly one stream from one wait to the next.
type grpcWorkerSource struct {
	sourceStubs
	workers map[uint64]*grpcWorker
}

// add emits the streams that ended: each lasts from the wake of a worker's wait for work to its next wait for work.
func (ws *grpcWorkerSource) add(c *collector, g *timeline.Gen) {
	removeEnded(ws.workers, g, nil)
	for id, worker := range ws.workers {
		if !worker.busy {
			worker.beginIdleWait(g, id, worker.idleSince)
		}
	}
	g.EachMarked(func(id uint64, marks []timeline.Mark) {
		for _, mark := range marks {
			if mark.Flags&flagWorker == 0 || mark.Kind != tracefmt.EvGoBlock {
				continue
			}
			worker := ws.workers[id]
			if worker == nil {
				worker = &grpcWorker{}
				ws.workers[id] = worker
				if _, hasBirth := g.BirthOf(id); !hasBirth {
					// Its stream began before the trace, or with a wake from a wait that the trace does not show.
					worker.busy, worker.cutAtStart = true, true
				}
			}
			if worker.busy {
				c.emitServed(&c.emitted, &worker.openRequest, Request{Kind: GRPC, End: mark.Time, G: id})
			}
			worker.beginIdleWait(g, id, mark.Time)
		}
	})
}

// beginIdleWait begins a wait for work at t and, if the wait ended in the generation, the next stream.
func (w *grpcWorker) beginIdleWait(g *timeline.Gen, id uint64, t int64) {
	w.idleSince = t
	if t, w.busy = g.NextWake(id, t); w.busy {
		w.openRequest = openAt(t)
	}
}

func (ws *grpcWorkerSource) serves(id uint64) bool { return ws.workers[id] != nil }

// openOn returns the call that a worker is serving, nil if there is none.
func (ws *grpcWorkerSource) openOn(id uint64) *openRequest {
	if w := ws.workers[id]; w != nil && w.busy {
		return &w.openRequest
	}
	return nil
}

// visitOpen visits the calls that workers are serving, except those that began before the trace.
func (ws *grpcWorkerSource) visitOpen(visit func(*openRequest, Request)) {
	for id, w := range ws.workers {
		if w.busy && !w.cutAtStart {
			visit(&w.openRequest, Request{Kind: GRPC, G: id})
		}
	}
}
