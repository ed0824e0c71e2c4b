module github.com/whylate/whylate/service

go 1.24
