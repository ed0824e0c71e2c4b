module github.com/whylate/whylate/lab/vm

go 1.26

require github.com/whylate/whylate/service v0.0.0
