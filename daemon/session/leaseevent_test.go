package session

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/redlock"
)

// Each effect has a case in Host.perform, and no other code gets effects that it could forget: each
// caller of locktable.Table.Apply calls Host.perform.
func TestEveryEffectIsPerformed(t *testing.T) {
	var effects []string
	cases := map[string]bool{}
	for _, file := range sourceFiles(t, "../locktable") {
		for _, decl := range file.Decls {
			if decl, ok := decl.(*ast.GenDecl); ok {
				effects = append(effects, constantsOf(decl, "Effects")...)
			}
		}
	}
	effects = slices.DeleteFunc(effects, func(name string) bool { return !ast.IsExported(name) }) // Table.Apply does them
	callers := map[string][]string{}                                                              // by method
	for _, file := range sourceFiles(t, ".") {
		for _, decl := range file.Decls {
			decl, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CaseClause:
					for _, value := range n.List {
						if effect, ok := value.(*ast.SelectorExpr); ok && decl.Name.Name == "perform" {
							cases[effect.Sel.Name] = true
						}
					}
				case *ast.SelectorExpr:
					switch name := n.Sel.Name; {
					case name == "Apply", name == "Restore" && isIdentSelector(n.X, "table"), name == "Grant" && isIdentSelector(n.X, "table"):
						callers["effects"] = append(callers["effects"], decl.Name.Name)
					case name == "perform":
						callers[name] = append(callers[name], decl.Name.Name)
					case name == "After" && !isIdentSelector(n.X, "timers"):
						t.Errorf("%s calls After: only locktable.Table does", decl.Name.Name)
					}
				}
				return true
			})
		}
	}
	for _, effect := range effects {
		if !cases[effect] {
			t.Errorf("perform has no case for %s", effect)
		}
	}
	if len(effects) == 0 || len(cases) != len(effects) {
		t.Errorf("found the effects %v, and the cases %v", effects, cases)
	}
	callers["effects"] = slices.DeleteFunc(callers["effects"], func(name string) bool { return name == "register" }) // settle performs what it leaves
	if want := []string{"apply", "endHold", "endUngranted", "recordEvent", "settle", "settleGranted"}; !slices.Equal(sorted(callers["perform"]), slices.Sorted(slices.Values(want))) || !slices.Equal(sorted(callers["effects"]), slices.DeleteFunc(want, func(name string) bool { return name == "settle" })) {
		t.Errorf("perform is called by %v, and %v get effects, want %v", callers["perform"], callers["effects"], want)
	}
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}

// isIdentSelector reports whether x selects a field with the name.
func isIdentSelector(x ast.Expr, name string) bool {
	selector, ok := x.(*ast.SelectorExpr)
	return ok && selector.Sel.Name == name
}

// sourceFiles returns the files of a package, except tests.
func sourceFiles(t *testing.T, dir string) (files []*ast.File) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// constantsOf returns the names of the constants of a type, if decl declares them in one block.
func constantsOf(decl *ast.GenDecl, typeName string) (names []string) {
	first, ok := decl.Specs[0].(*ast.ValueSpec)
	if !ok || decl.Tok != token.CONST || !isIdent(first.Type, typeName) {
		return nil
	}
	for _, spec := range decl.Specs {
		names = append(names, spec.(*ast.ValueSpec).Names[0].Name)
	}
	return names
}

func isIdent(x ast.Expr, name string) bool {
	id, ok := x.(*ast.Ident)
	return ok && id.Name == name
}

// If the client ends while its lost lease is being remembered, nothing of the lease stays.
func TestLossIsNotRememberedTooLate(t *testing.T) {
	d := readyHost(t)
	s := newTestSession(d)
	lease, err := d.Nodes.Acquire(t.Context(), redlock.Request{Name: "a", TTL: 10 * time.Second, Wait: -1})
	if err != nil {
		t.Fatal(err)
	}
	h := newTestLease(s, "a")
	h.lease, h.Life = lease, locktable.Life{State: locktable.Lost, Knows: locktable.KnowsLoss}
	due := d.table.Apply(&h.Lease, locktable.LossRemembered)
	d.forget(h)
	d.perform(h, due, nil)
	if s.client.Remembers() > 0 || !d.table.CountsNothing() {
		t.Errorf("%d lost leases are left on the connection, and counted: %v", s.client.Remembers(), !d.table.CountsNothing())
	}
}

// FORCE can take a lease away before its LOCK knows of the grant. Then nothing may read the lease:
// see heldLease.lease.
func TestForceBeforeLockSeesTheGrant(t *testing.T) {
	d := readyHost(t)
	h := newTestLease(newTestSession(d), "a")
	if err := d.queue.Join(&h.Waiter); err != nil {
		t.Fatal(err)
	}
	lease, err := d.Nodes.Acquire(t.Context(), redlock.Request{Name: "a", TTL: 10 * time.Second, Wait: -1})
	if err != nil {
		t.Fatal(err)
	}
	lease.Lose(redlock.LostForced)
	d.leaseLost(h, lease)
	if queued(d) != 0 {
		t.Error("the lease is in the queue although other clients can get the lock")
	}
}
