module github.com/whylate/whylate/stories

go 1.26.0
