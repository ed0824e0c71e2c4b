// Package acceptance has the tests that judge whole answers: a recording goes in, and the report must agree with a truth from
// outside of whylate: a service with a known fault, a client's own clock, a CPU profile, the kernel's counters.
package acceptance
