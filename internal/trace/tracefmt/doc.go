// Package tracefmt reads the bytes of Go execution traces, format v2 (Go 1.22 and later), and returns generations:
// the batches of each thread, with the tables of strings and stacks, the CPU samples and the clock data that their
// events refer to.
//
// It does not interpret events. Package internal/trace/timeline does.
//
// The format is defined by the sources of the runtime (internal/trace/tracev2, Go 1.26). whylate relies on these
// properties:
//
//   - A file is a 16-byte header ("go 1.NN trace" padded with NUL) and a sequence of batches. All numbers are unsigned LEB128.
//   - Each batch belongs to a generation of about one second. Generations follow each other and never interleave. A generation is
//     self-contained: ids of strings and stacks are valid only inside it.
//   - Up to Go 1.25, the first batch of the next generation ends a generation; since Go 1.26 a marker byte does.
//   - The batches of one thread (M), in file order, are one ordered stream.
package tracefmt
