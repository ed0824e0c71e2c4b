// Package tracefmt reads the bytes of Go execution traces, format v2 (Go 1.22
// and later), into generations: batches of events grouped by thread, with the
// string and stack tables, CPU samples and clock data they refer to.
//
// It stops at the border of what can be done without looking at an event's
// meaning; [internal/trace/timeline] gives events their meaning.
//
// The format is described by the runtime's own sources
// (internal/trace/tracev2, Go 1.26) and has these properties that the rest of
// whylate builds on:
//
//   - A file is a 16-byte header ("go 1.NN trace" padded with NUL) and a
//     sequence of batches. All numbers are unsigned LEB128.
//   - Batches belong to a generation of about one second. Generations follow
//     one another and never interleave. A generation stands alone: string and
//     stack ids mean something only inside it.
//   - Up to Go 1.25 the first batch of the next generation ends a generation;
//     since Go 1.26 a marker byte does.
//   - The batches of one thread (M), in file order, are one ordered stream.
package tracefmt
