// Package service starts whylate's components for a running service with one call: a
// tuner that sets GOMAXPROCS by the container's quota, the probe for freezes, the page
// that shows both, and, if Options.Flight is set, the flight recorder.
//
//	s := service.Start(service.Options{Flight: &flight.Options{Dir: "/var/lib/shop/flight"}})
//	defer s.Stop()
//	h := s.Handler(debugz.Options{})
//	mux.Handle("/debug/limits", h)
//	mux.Handle("/debug/flight", h)
//	http.ListenAndServe(":8080", mark.Handler(routes))
//
// Packages tune, probe, flight and debugz have these components. Packages cgroup, pool,
// traps, mark and redact are independent of them. Importing auto starts a tuner without
// a call. Do not use both: each of two tuners would treat the other's values as set by
// other code.
package service
