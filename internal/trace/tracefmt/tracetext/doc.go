// Package tracetext makes execution traces for tests: from the text form in
// which Go's own test traces are written ([Assemble]), or step by step from
// goroutines, threads and what happens to them ([Builder]).
//
// What it makes is meant to be accepted by the reference reader,
// golang.org/x/exp/trace, unless the text says something it rejects.
package tracetext
