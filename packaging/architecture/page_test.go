package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var functionLink = regexp.MustCompile("\\[`([A-Za-z.]+)`\\]\\(([^)]+\\.go)\\)")

// Each function that the page links to is declared in the file of the link.
func TestPageLinksToFunctions(t *testing.T) {
	const folder = "../docs/design"
	text, err := os.ReadFile(filepath.Join(folder, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	links := functionLink.FindAllStringSubmatch(string(text), -1)
	if len(links) < 20 {
		t.Errorf("found %d links to functions, want at least 20", len(links))
	}
	for _, link := range links {
		if !declares(t, filepath.Join(folder, link[2]), link[1]) {
			t.Errorf("ARCHITECTURE.md: %s does not declare %s", link[2], link[1])
		}
	}
}

// declares reports whether a file declares a function, a type, or a Type.Method.
func declares(t *testing.T, path, name string) bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Error(err)
		return false
	}
	found := false
	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			full := d.Name.Name
			if d.Recv != nil {
				full = typeName(d.Recv.List[0].Type) + "." + full
			}
			found = found || full == name
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok {
					found = found || s.Name.Name == name
				}
			}
		}
	}
	return found
}

func typeName(expression ast.Expr) string {
	switch e := expression.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
