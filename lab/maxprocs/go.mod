module github.com/whylate/whylate/lab/maxprocs

go 1.26

require (
	github.com/whylate/whylate v0.0.0
	github.com/whylate/whylate/lab/vm v0.0.0
	github.com/whylate/whylate/service v0.0.0
	github.com/KimMachineGun/automemlimit v1.0.1
	go.uber.org/automaxprocs v1.6.0
	golang.org/x/sync v0.24.0
)
