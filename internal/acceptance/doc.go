// Package acceptance tests whole answers. A recording goes in, and its report must agree with a source of truth outside
// whylate: a service with a known fault, a client's clock, a CPU profile, or the kernel's counters.
//
// The services are those of lab/truth, the programs those of lab/field and lab/traceprog; package testprog reads their
// recordings. Tests that need a live run or a synthetic trace make it themselves. With -update, the tests rewrite the tables
// in testdata and docs/internals/accuracy.md, and the known wrong answers of the field recordings.
package acceptance
