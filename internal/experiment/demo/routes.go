package demo

import "time"

// A Route is one kind of request with its rate.
type Route struct {
	Path string
	Rate int // requests a second
}

// Routes returns the requests of the demo.
func Routes() []Route { return []Route{{"/report", 12}, {"/order", 14}, {"/price", 8}} }

// Result is the client's measurement of a route. Latency counts from the time at which a request
// should have been sent.
type Result struct {
	Count, Errors int
	P50           time.Duration
	Err           error // the most frequent one of all routes
}
