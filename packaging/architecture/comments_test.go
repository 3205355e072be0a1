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

// outside lists names in comments that other programs and libraries declare.
var outside = []string{
	"FreeBSD", "GitHub", "PromQL", // proper names
	"LineMax", "proc_pid_stat", "sd_pid_notify_with_fds", // systemd and Linux, see their manual pages
	"LevelWriter", "WriteMsgUnix", "cmdstat_get", "redis.io", // hclog, net and Redis
	"figures.md", "File.Fd", // an example, and a method of the standard library
}

// A comment names only what exists, and says nothing twice.
func TestCommentsAreCurrent(t *testing.T) {
	v := NewVocabulary(outside...)
	if err := v.ReadTree("../.."); err != nil {
		t.Fatal(err)
	}
	if len(v.Comments) < 5000 {
		t.Errorf("%d comments were found, want at least 5,000", len(v.Comments))
	}
	for _, c := range v.Comments {
		for _, name := range v.Unknown(c.Text) {
			t.Errorf("%s:%d: the comment names %s, which does not exist", c.File, c.Line, name)
		}
		if text := Repeated(c.Text); text != "" {
			t.Errorf("%s:%d: the comment says twice: %s", c.File, c.Line, text)
		}
	}
}

func TestVocabulary(t *testing.T) {
	v := NewVocabulary("GitHub")
	for path, text := range map[string]string{
		"a/lane.go": "package node\n\n// A comment that names oldName.\ntype Lane struct{ queue; sentAt int; mu struct{ at int } }\n" +
			"type queue struct{ length int }\nfunc (l *Lane) resend() { println(`lease.ttl max_ttl`) }\nfunc Dial() {}\n",
		"a/ballot.lua": "local token_key = 1 -- what fence_of had\n-- once\n",
		"a/run.sh":     "make_room",
		"a/page.md":    "goneName",
	} {
		if err := v.Read(path, text); err != nil {
			t.Fatal(err)
		}
	}
	if len(v.Comments) != 2 || v.Comments[0].Text+v.Comments[1].Text != "A comment that names oldName.\nwhat fence_of had\nonce" &&
		v.Comments[1].Text+v.Comments[0].Text != "A comment that names oldName.\nwhat fence_of had\nonce" {
		t.Errorf("the comments are %v", v.Comments)
	}
	for comment, want := range map[string]string{
		"sentAt, Lane.sentAt, Lane.at and Lane.length":     "",
		"node.Lane.resend, node.Dial, Dial's lease.ttl":    "",
		"token_key, make_room, max_ttl, GitHub, e.g. this": "",
		"see lane.go, ballot.lua, time.After, io.EOF":      "",
		"oldName":             "oldName",
		"goneName":            "goneName",
		"OldName.":            "OldName",
		"fence_of":            "fence_of",
		"`Lane.send`, so":     "Lane.send",
		"node.Lane.receive":   "Lane.receive",
		"node.Listen":         "node.Listen",
		"queue.sentAt":        "queue.sentAt",
		"lease.max in old.go": "old.go",
		"Guards op n; resend: sentAt; Lane.mu; the order.": "",
		"Guards sentAt: wasSent, sending; gone.":           "sending gone wasSent",
	} {
		if got := strings.Join(v.Unknown(comment), " "); got != want {
			t.Errorf("%q: unknown are %q, want %q", comment, got, want)
		}
	}
	for comment, want := range map[string]string{
		"It waits. It ends, on which which depends.":   "",
		"It stops\nreading.\nreading.":                 "reading.",
		"The page\ndraws them.\ndraws them.":           "draws them.",
		"a b c d e f g h. Then: a b c d e f g h.":      "a b c d e f g h.",
		"Table:\n\ta b c d e f g h\n\ta b c d e f g h": "",
	} {
		if got := Repeated(comment); got != want {
			t.Errorf("%q: %q is said twice, want %q", comment, got, want)
		}
	}
}
