// Package load sends requests at times that are fixed before the first one is sent, and says how long the answers took.
//
// # Open loop
//
// Users do not wait for each other. A generator that sends its next request when the last is answered does: while the
// server stalls it sends nothing, and the time that users would have waited is never measured (coordinated omission; G.
// Tene, "How NOT to Measure Latency", 2013). So a run has a schedule, laid out from a seed. Every request has an intended
// start, and three times are recorded:
//
//   - intended: from the intended start to the end of the answer. It is the latency that a user sees.
//   - service: from the actual start to the end of the answer. It is what the server and the network took.
//   - lateness: from the intended to the actual start. It is the generator's own fault, and part of intended.
//
// No request is left out silently: those that would be more than the cap in flight are counted as dropped and make the run
// invalid. A closed loop is there for those who ask for it, with a warning.
//
// # Gates
//
// A [Result] has warnings, each with what to do about it, and says whether its figures can be used (Valid).
package load
