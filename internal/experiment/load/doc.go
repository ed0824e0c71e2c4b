// Package load sends requests at scheduled times and measures how long the answers take.
//
// Users do not wait for each other. A generator that waits for each answer before it sends the next
// request sends nothing while the server stalls, so it never measures the time that users would have
// waited (coordinated omission; G. Tene, "How NOT to Measure Latency", 2013). So a run follows a
// schedule that is computed from a seed before the first request: the open loop. Every request has an
// intended start, and the run records three times:
//
//   - intended: from the intended start to the end of the answer. It is the latency that a user
//     sees.
//   - service: from the actual start to the end of the answer. It is the time of the server and the
//     network.
//   - lateness: from the intended to the actual start. It is the generator's delay, and a part of
//     intended.
//
// A request above the limit of requests in flight is counted as dropped and makes the run invalid. A
// closed loop is available, with a warning.
//
// A [Result] has warnings, each with advice, and Valid reports whether its figures are usable.
package load
