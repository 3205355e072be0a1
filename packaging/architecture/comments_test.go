package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// The comment of a function, method or type begins with its name, so that the test notices a rename
// that forgets the comment.
func TestCommentsBeginWithTheName(t *testing.T) {
	for path, p := range tree(t) {
		for _, name := range p.Files {
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, declaration := range file.Decls {
				for _, ident := range misnamed(declaration) {
					t.Errorf("%s/%s:%d: the comment of %s begins with another word", path, name, fset.Position(ident.Pos()).Line, ident.Name)
				}
			}
		}
	}
}

// misnamed returns the declarations whose comment begins with another name.
func misnamed(declaration ast.Decl) (found []*ast.Ident) {
	check := func(doc *ast.CommentGroup, ident *ast.Ident) {
		if doc == nil || strings.TrimSpace(doc.Text()) == "" {
			return
		}
		words := strings.Fields(doc.Text())
		if article := words[0]; len(words) > 1 && (article == "A" || article == "An" || article == "The") {
			words = words[1:]
		}
		if strings.Trim(words[0], ",.:;()") != ident.Name {
			found = append(found, ident)
		}
	}
	switch d := declaration.(type) {
	case *ast.FuncDecl:
		check(d.Doc, d.Name)
	case *ast.GenDecl:
		if d.Tok != token.TYPE {
			return nil
		}
		for _, spec := range d.Specs {
			s := spec.(*ast.TypeSpec)
			if s.Doc == nil && len(d.Specs) == 1 {
				check(d.Doc, s.Name)
			} else {
				check(s.Doc, s.Name)
			}
		}
	}
	return found
}
