// Package service starts all that whylate has for a running service with one
// call: GOMAXPROCS by the container's quota, the probe for freezes, and the page
// that shows both.
//
//	s := service.Start(service.Options{})
//	defer s.Stop()
//	mux.Handle("/debug/limits", s.Handler(debugz.Options{}))
//
// What it starts is in packages tune, probe and debugz; cgroup, pool, traps,
// mark and flight are for use by themselves, and importing auto does the first part without a
// call. Do not import auto beside this call: of two tuners each takes the other
// for code that sets its own values.
package service
