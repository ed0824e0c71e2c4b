package main

import (
	"cmp"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// A ratio counts the names or words of one kind, and those among them that are not plain.
type ratio struct{ hits, total int }

// add counts a name, and whether it is a function word.
func (r *ratio) add(hit bool) {
	r.total++
	if hit {
		r.hits++
	}
}

// per returns hits in a scale of names or words: 100 for percent.
func (r ratio) per(scale float64) float64 { return scale * float64(r.hits) / float64(max(1, r.total)) }

// A finding is one name or phrase that is not plain.
type finding struct {
	position token.Position
	text     string
}

// A measure sums up the names and comments of a set of files.
type measure struct {
	lines                            int
	functions, types, fields, locals ratio // names; locals are parameters, results and variables declared by :=
	comments                         ratio // marked phrases by words
	findings                         []finding
}

// add counts the declared names and the comments of a file.
func (m *measure) add(files *token.FileSet, file *ast.File) {
	m.lines += files.File(file.Pos()).LineCount()
	for _, group := range file.Comments {
		m.addComment(files, group)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			m.addName(files, &m.functions, n.Name)
		case *ast.TypeSpec:
			m.addName(files, &m.types, n.Name)
		case *ast.StructType:
			m.addFields(files, &m.fields, n.Fields)
		case *ast.FuncType:
			m.addFields(files, &m.locals, n.Params)
			m.addFields(files, &m.locals, n.Results)
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				break
			}
			for _, declared := range n.Lhs {
				if name, ok := declared.(*ast.Ident); ok {
					m.addName(files, &m.locals, name)
				}
			}
		}
		return true
	})
}

// addFields counts the names of a list of fields or parameters as kind.
func (m *measure) addFields(files *token.FileSet, kind *ratio, list *ast.FieldList) {
	if list == nil {
		return
	}
	for _, field := range list.List {
		for _, name := range field.Names {
			m.addName(files, kind, name)
		}
	}
}

// addName counts a name as kind; a function word becomes a finding. The names _, main and init are not counted.
func (m *measure) addName(files *token.FileSet, kind *ratio, name *ast.Ident) {
	if name.Name == "_" || name.Name == "main" || name.Name == "init" {
		return
	}
	hit := functionWords[strings.ToLower(name.Name)]
	kind.add(hit)
	if hit {
		m.findings = append(m.findings, finding{files.Position(name.Pos()), name.Name})
	}
}

// addComment counts phrases over the lines of a comment, as a phrase may be broken by the end of a line.
func (m *measure) addComment(files *token.FileSet, group *ast.CommentGroup) {
	text := strings.Join(strings.Fields(group.Text()), " ")
	m.comments.total += strings.Count(text, " ") + 1
	for _, phrase := range phrases.FindAllString(text, -1) {
		m.comments.hits++
		position := files.Position(group.Pos())
		for _, line := range group.List {
			if strings.Contains(line.Text, phrase) {
				position = files.Position(line.Pos())
			}
		}
		m.findings = append(m.findings, finding{position, phrase})
	}
}

func (m *measure) sortFindings() {
	slices.SortFunc(m.findings, func(a, b finding) int {
		return cmp.Or(strings.Compare(a.position.Filename, b.position.Filename), a.position.Line-b.position.Line)
	})
}
