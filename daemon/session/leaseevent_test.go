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

// Each effect has a case in Host.changeLocked or Host.perform, and no other code gets effects that it
// could forget: the callers of Host.changeLocked call Host.perform, and only that calls
// locktable.Life.After.
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
	callers := map[string][]string{} // by method
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
						if effect, ok := value.(*ast.SelectorExpr); ok && (decl.Name.Name == "changeLocked" || decl.Name.Name == "perform") {
							cases[effect.Sel.Name] = true
						}
					}
				case *ast.SelectorExpr:
					if name := n.Sel.Name; name == "perform" || name == "changeLocked" || name == "After" && !isTimers(n.X) {
						callers[name] = append(callers[name], decl.Name.Name)
					}
				}
				return true
			})
		}
	}
	for _, effect := range effects {
		if !cases[effect] {
			t.Errorf("neither changeLocked nor perform has a case for %s", effect)
		}
	}
	if len(effects) == 0 || len(cases) != len(effects) {
		t.Errorf("found the effects %v, and the cases %v", effects, cases)
	}
	for method, want := range map[string][]string{"perform": {"applyIf", "settleGranted"}, "changeLocked": {"applyIf", "settleGranted"}, "After": {"changeLocked"}} {
		if got := callers[method]; !slices.Equal(got, want) {
			t.Errorf("%s is called by %v, want %v", method, got, want)
		}
	}
}

// isTimers reports whether x is a timers.Set of a Host.
func isTimers(x ast.Expr) bool {
	selector, ok := x.(*ast.SelectorExpr)
	return ok && selector.Sel.Name == "timers"
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
	s := &session{host: d}
	lease, err := d.Nodes.Acquire(t.Context(), redlock.Request{Name: "a", TTL: 10 * time.Second, Wait: -1})
	if err != nil {
		t.Fatal(err)
	}
	h := &heldLease{session: s, index: &s.leases, life: locktable.Life{State: locktable.Lost, Knows: locktable.KnowsLoss}, lease: lease}
	h.waiter.Init([]string{"a"}, locktable.Kind{}, false, &h.Requester, nil)
	p := performed{did: change(h, locktable.LossRemembered)}
	d.forget(h)
	d.perform(h, &p, 0)
	if len(s.leases.lost) > 0 || !d.Limits.IsEmpty() {
		t.Errorf("%d lost leases are left on the connection, and counted: %v", len(s.leases.lost), !d.Limits.IsEmpty())
	}
}

// FORCE can take a lease away before its LOCK knows of the grant. Then nothing may read the lease:
// see heldLease.lease.
func TestForceBeforeLockSeesTheGrant(t *testing.T) {
	d := readyHost(t)
	h := &heldLease{}
	h.waiter.Init([]string{"a"}, locktable.Kind{}, false, &h.Requester, nil)
	if err := d.queue.Join(&h.waiter); err != nil {
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
