module github.com/whylate/whylate/stories

go 1.26.0

require (
	github.com/whylate/whylate v0.0.0
	github.com/whylate/whylate/service v0.0.0
	go.uber.org/automaxprocs v1.6.0
)

require (
	github.com/HdrHistogram/hdrhistogram-go v1.4.0 // indirect
	github.com/google/pprof v0.0.0-20260906184651-6331bc6350fe // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)
