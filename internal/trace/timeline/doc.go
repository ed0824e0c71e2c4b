// Package timeline decodes the event streams of a generation's threads into the lives of its goroutines and Ps,
// without bringing all events into one global order.
//
// Input are the generations that package tracefmt reads. A [Decoder] turns each into a [Gen], and a [Window] over
// consecutive Gens answers questions: the states of a goroutine ([Window.Spans]), the runs of the threads
// ([Window.EachRun]), births, wakes, stops of the world.
//
// The reference reader (golang.org/x/exp/trace) orders the events of all threads before it returns the first one.
// Most of its time goes into that order, and no question above needs it. Inside one generation:
//
//   - The batches of a thread, in file order, are one ordered stream, which alone determines the goroutine that the
//     thread runs.
//   - The life of a goroutine consists of pieces. A piece is a run on one thread (from the event that binds the
//     goroutine to the thread to the event that unbinds it), or one event about the goroutine in the run of another
//     one (creation, wake, status). The trace numbers the pieces of each goroutine densely from 0, so a piece belongs
//     at index slotBase[goroutine] + sequence number, and nothing has to be sorted.
//   - Ps are numbered in the same way.
//
// So workers decode threads in parallel into columns of 8-byte records, an index assigns the pieces to slots, and
// a query expands the spans of one goroutine when it needs them.
//
// At the start of a generation, each live goroutine has a status event, which repeats its state and begins no
// span.
package timeline
