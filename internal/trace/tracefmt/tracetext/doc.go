// Package tracetext creates execution traces for tests: from the text form of Go's own test traces ([Assemble]),
// or step by step from goroutines, threads and their events ([Builder]).
//
// The reference reader, golang.org/x/exp/trace, accepts the traces, unless the text contains an error that it
// rejects.
package tracetext
