module github.com/whylate/whylate/lab/field/programs

go 1.26.0
