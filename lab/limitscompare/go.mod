module github.com/whylate/whylate/lab/limitscompare

go 1.26

require (
	github.com/KimMachineGun/automemlimit v1.0.1
	github.com/whylate/whylate v0.0.0
	github.com/whylate/whylate/lab/vm v0.0.0
	github.com/whylate/whylate/service v0.0.0
	go.uber.org/automaxprocs v1.6.0
)

require github.com/pbnjay/memory v0.0.0-20210728143218-7b4eea64cf58 // indirect
