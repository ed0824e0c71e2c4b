// Package service starts everything that whylate has for a running service with one
// call: GOMAXPROCS by the container's quota, the probe for freezes, the page that
// shows both, and, if Options.Flight is set, the recorder of slow moments.
//
//	s := service.Start(service.Options{Flight: &flight.Options{Dir: "/var/lib/shop/flight"}})
//	defer s.Stop()
//	h := s.Handler(debugz.Options{})
//	mux.Handle("/debug/limits", h)
//	mux.Handle("/debug/flight", h)
//	http.ListenAndServe(":8080", mark.Handler(routes))
//
// What it starts is in packages tune, probe, flight and debugz. Packages cgroup, pool,
// traps, mark and redact are for use by themselves. Importing auto does the first part
// without a call. Do not import auto beside this call: each of two tuners takes the
// other for code that sets its own values.
package service
