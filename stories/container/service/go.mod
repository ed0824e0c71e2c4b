module github.com/whylate/whylate/stories/container/service

go 1.26.0

require (
	github.com/whylate/whylate/service v0.0.0
	go.uber.org/automaxprocs v1.6.0
)
