package main

import "time"

// A scenario is a service under load, and what disturbs it.
type scenario struct {
	name    string
	path    string        // of the requests
	conns   int           // connections, each with an open loop
	every   time.Duration // between two requests of a connection
	quota   float64       // CPUs of the service's own group; 0: none
	parent  float64       // CPUs of the group above
	period  time.Duration // of the quotas; 0: 100 ms
	procs   int           // GOMAXPROCS; 0: the default
	hogs    int           // processes that compute
	stop    time.Duration // length of a SIGSTOP, five times; 0: none
	slow    time.Duration // between the two halves of a request's body
	busy    int           // goroutines that compute all the time
	isQuiet bool          // the hogs have the lowest priority
}

const work = "/work?ms=4"

var scenarios = []scenario{
	{name: "plain", path: work, conns: 2, every: 25 * time.Millisecond},
	{name: "idle", path: "/work?ms=0.3", conns: 1, every: 900 * time.Millisecond},
	{name: "busy", path: work, conns: 4, every: 10 * time.Millisecond},
	{name: "saturated", path: work, conns: 8, every: time.Millisecond},
	{name: "hog-1", path: work, conns: 2, every: 25 * time.Millisecond, hogs: 1},
	{name: "hogs-3", path: work, conns: 2, every: 25 * time.Millisecond, hogs: 3},
	{name: "hogs-light", path: "/work?ms=0.2", conns: 2, every: 10 * time.Millisecond, hogs: 3},
	{name: "hogs-quiet", path: work, conns: 2, every: 25 * time.Millisecond, hogs: 3, isQuiet: true},
	{name: "quota-0.4", path: work, conns: 3, every: 25 * time.Millisecond, quota: 0.4},
	{name: "quota-0.2", path: work, conns: 2, every: 40 * time.Millisecond, quota: 0.2},
	{name: "quota-0.8", path: work, conns: 4, every: 16 * time.Millisecond, quota: 0.8},
	{name: "quota-light", path: "/wait?ms=1", conns: 2, every: 25 * time.Millisecond, quota: 0.1},
	{name: "quota-20ms", path: work, conns: 3, every: 25 * time.Millisecond, quota: 0.4, period: 20 * time.Millisecond},
	{name: "quota-unused", path: work, conns: 1, every: 100 * time.Millisecond, quota: 1},
	{name: "quota-procs", path: work, conns: 8, every: 40 * time.Millisecond, quota: 0.9, procs: 8},
	{name: "parent-0.4", path: work, conns: 3, every: 25 * time.Millisecond, parent: 0.4},
	{name: "parent-0.8", path: work, conns: 4, every: 16 * time.Millisecond, parent: 0.8},
	{name: "parent-hogs", path: work, conns: 3, every: 25 * time.Millisecond, parent: 0.4, hogs: 2},
	{name: "quota-hog", path: work, conns: 3, every: 25 * time.Millisecond, quota: 0.4, hogs: 1},
	{name: "quota-hogs", path: work, conns: 3, every: 25 * time.Millisecond, quota: 0.4, hogs: 3},
	{name: "quota-spin", path: "/work?ms=0.5", conns: 2, every: 20 * time.Millisecond, quota: 0.7, busy: 2},
	{name: "sigstop", path: work, conns: 2, every: 25 * time.Millisecond, stop: 150 * time.Millisecond},
	{name: "sigstop-hogs", path: work, conns: 2, every: 25 * time.Millisecond, stop: 150 * time.Millisecond, hogs: 2},
	{name: "mmap", path: "/fault", conns: 2, every: 25 * time.Millisecond},
	{name: "mmap-hogs", path: "/fault", conns: 2, every: 25 * time.Millisecond, hogs: 3},
	{name: "fsync", path: "/sync", conns: 2, every: 40 * time.Millisecond},
	{name: "slow-sender", path: "/read", conns: 3, every: 50 * time.Millisecond, slow: 30 * time.Millisecond},
	{name: "gc", path: "/garbage", conns: 4, every: 10 * time.Millisecond},
	{name: "gc-quota", path: "/garbage", conns: 3, every: 25 * time.Millisecond, quota: 0.4},
	{name: "gc-hogs", path: "/garbage", conns: 3, every: 20 * time.Millisecond, hogs: 3},
	{name: "lock", path: "/lock", conns: 6, every: 20 * time.Millisecond},
	{name: "lock-hogs", path: "/lock", conns: 6, every: 20 * time.Millisecond, hogs: 3},
	{name: "spin", path: "/work?ms=0.5", conns: 2, every: 10 * time.Millisecond, busy: 2},
	{name: "child", path: "/exec", conns: 1, every: 60 * time.Millisecond},
}
