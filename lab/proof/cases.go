package main

// A provable is a service, and the change that its -fix makes in the words of
// --what-if.
type provable struct {
	service string
	changes []string
	shape   string
}

func cases() []provable {
	return []provable{
		{"routes", []string{"order=2ms"}, "a sleep on the request's own goroutine"},
		{"open-loop", []string{"sleep@(*napping).ask=2ms"}, "the same, requests at random"},
		{"cpu-handler", []string{"compute=1ms"}, "computing"},
		{"retry", []string{"sleep@(*retry).ask=12.5%"}, "two back-offs, by one factor"},
		{"deadline", []string{"sleep@(*deadline).ask=3ms"}, "a context's deadline"},
		{"hedge", []string{"first=2ms"}, "a timer in a select"},
		{"waitgroup", []string{"prices=2ms"}, "the last of three goroutines"},
		{"near-siblings", []string{"slowest=1ms"}, "the last of three goroutines, until the next is the last"},
		{"nested", []string{"inner=2ms"}, "a sleep three goroutines away"},
		{"pubsub", []string{"fetchOffsets=5ms", "release=5ms"}, "two sleeps on a library's goroutine"},
		{"timeout-handler", []string{"(*inner).ask=2ms"}, "a handler under TimeoutHandler"},
		{"lock-chain", []string{"holdB=2ms"}, "a lock whose holder waits for a lock"},
		{"mutex-cpu", []string{"spin=1ms"}, "computing under a mutex, 4 clients"},
		{"h2-lock", []string{"entry=1ms"}, "sleeping under a mutex, 6 streams"},
		{"open-queue", []string{"(*counter).serve=3ms"}, "sleeping under a mutex, requests at random"},
		{"single-worker", []string{"spin=1ms"}, "one worker, 3 clients"},
		{"pipeline", []string{"enriches=1ms"}, "the middle one of three stages, 4 clients"},
		{"hub", []string{"roundTrip=1ms"}, "a remote call for a batch"},
		{"semaphore", []string{"queue@(*semaphore).use=gone"}, "one slot, then eight; 4 clients"},
		{"worker-pool", []string{"queue@(*workers).work=gone"}, "two workers, then eight; 6 clients"},
		{"weighted", []string{"queue@(*weighted).use=gone"}, "a semaphore for two, then for eight; 6 clients"},
		{"singleflight", []string{"load=2ms"}, "a load that several share"},
		{"once", []string{"open=2ms"}, "an initialisation that some meet"},
		{"actor-select", []string{"store=1ms"}, "writes that reads meet"},
		{"ticker-flush", []string{"flush=5ms"}, "a ticker's period"},
		{"back-pressure", []string{"(*auditLog).write=gone"}, "a full channel's reader"},
		{"one-proc", []string{"halves=200us"}, "computing on one P, 4 clients"},
	}
}
