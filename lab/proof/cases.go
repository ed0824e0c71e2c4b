package main

// A provableChange is a service with the change of its -fix in the words of --what-if, or with a setting and the flags of
// "truth run" that make it.
type provableChange struct {
	service string
	changes []string
	shape   string
	setting []string
}

func cases() []provableChange {
	return []provableChange{
		{"routes", []string{"order=2ms"}, "a sleep on the request's own goroutine", nil},
		{"open-loop", []string{"sleep@(*napping).ask=2ms"}, "the same, requests at random", nil},
		{"cpu-handler", []string{"compute=1ms"}, "computing", nil},
		{"retry", []string{"sleep@(*retry).ask=12.5%"}, "two back-offs, by one factor", nil},
		{"deadline", []string{"sleep@(*deadline).ask=3ms"}, "a deadline", nil},
		{"hedge", []string{"first=2ms"}, "a timer in a select", nil},
		{"waitgroup", []string{"prices=2ms"}, "the last of three goroutines", nil},
		{"near-siblings", []string{"slowest=1ms"}, "the last of three goroutines, until the next is the last", nil},
		{"nested", []string{"inner=2ms"}, "a sleep three goroutines away", nil},
		{"pubsub", []string{"fetchOffsets=5ms", "release=5ms"}, "two sleeps on a library's goroutine", nil},
		{"timeout-handler", []string{"(*inner).ask=2ms"}, "a handler under TimeoutHandler", nil},
		{"lock-chain", []string{"holdB=2ms"}, "a lock whose holder waits for a lock", nil},
		{"mutex-cpu", []string{"spin=1ms"}, "computing under a mutex, 4 clients", nil},
		{"h2-lock", []string{"entry=1ms"}, "sleeping under a mutex, 6 streams", nil},
		{"open-queue", []string{"(*counter).serve=3ms"}, "sleeping under a mutex, requests at random", nil},
		{"single-worker", []string{"spin=1ms"}, "one worker, 3 clients", nil},
		{"pipeline", []string{"enriches=1ms"}, "the middle one of three stages, 4 clients", nil},
		{"hub", []string{"roundTrip=1ms"}, "a remote call for a batch", nil},
		{"semaphore", []string{"queue@(*semaphore).use=gone"}, "one slot, then eight; 4 clients", nil},
		{"worker-pool", []string{"queue@(*workers).work=gone"}, "two workers, then eight; 6 clients", nil},
		{"weighted", []string{"queue@(*weighted).use=gone"}, "a semaphore for two, then for eight; 6 clients", nil},
		{"singleflight", []string{"load=2ms"}, "a load that several share", nil},
		{"once", []string{"open=2ms"}, "an initialisation that some meet", nil},
		{"actor-select", []string{"store=1ms"}, "writes that reads meet", nil},
		{"ticker-flush", []string{"flush=5ms"}, "a ticker's period", nil},
		{"back-pressure", []string{"(*auditLog).write=gone"}, "a full channel's reader", nil},
		{"one-proc", []string{"halves=200us"}, "computing on one P, 4 clients", nil},
		{"gc-assist", []string{"GOGC=50"}, "garbage collection at GOGC=10", []string{"-gogc=50"}},
		{"gc-assist", []string{"GOGC=400"}, "the same, further", []string{"-gogc=400"}},
		{"gc-churn", []string{"GOGC=200"}, "more garbage than the collector keeps up with", []string{"-gogc=200"}},
		{"gc-churn", []string{"GOGC=400"}, "the same, further", []string{"-gogc=400"}},
		{"few-ps", []string{"GOMAXPROCS=2"}, "one P for 4 clients", []string{"-procs=2"}},
		{"throttled", []string{"quota=0.75"}, "a CPU quota of 0.5, which the trace does not tell", []string{"-quota=0.75"}},
		{"throttled", []string{"quota=1"}, "the same, further", []string{"-quota=1"}},
	}
}
