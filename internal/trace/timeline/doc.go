// Package timeline puts goroutines' and Ps' lives together from the threads'
// streams of a trace, without bringing all events into one global order.
//
// The reference reader (golang.org/x/exp/trace) orders every event of every
// thread before it hands one out; that order is what costs its time. It is
// not needed here. Inside one generation:
//
//   - A thread's batches, in file order, are one ordered stream, and which
//     goroutine it runs follows from that stream alone.
//   - A goroutine's life is cut into pieces: a run on one thread (from the
//     event that binds it to the one that unbinds it), or a single event about
//     it in another goroutine's run (created, woken, status). The trace
//     numbers the pieces of each goroutine densely from 0, so a piece's place
//     is base[goroutine] + sequence number: no sorting.
//   - Ps are numbered in the same way.
//
// So threads are decoded in parallel into flat columns of records, an index
// places the pieces, and readers expand a goroutine's spans when and where
// they need them. See [Gen] for the columns and [Window.Spans] for reading.
//
// At a generation's border every live goroutine has a status event that
// repeats the state it was in; it opens no new span.
package timeline
