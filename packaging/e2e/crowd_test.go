//go:build linux

package e2e

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// crowd is the set of tests that run beside others. A test that is measured waits until they have
// ended, and no other one begins before it has ended.
type crowd struct {
	mu      sync.Mutex      // guards the fields below
	inside  map[string]bool // names of the tests that run
	alone   string          // the test that is measured or waits for that; or empty
	changed chan struct{}   // closed and replaced when one of these fields changes
}

var everybody = crowd{inside: map[string]bool{}, changed: make(chan struct{})}

// together lets a test run beside others that mostly wait, but not beside a measured one.
//
// A test that calls together must have no parallel subtests. It would wait for them, and they for
// other tests to end. Those could wait for a measured test, which waits for this one: a deadlock.
func together(t *testing.T) {
	t.Parallel()
	c := &everybody
	c.enter(t, "the measured test has ended", func() bool { return c.alone == "" }, func() { c.inside[t.Name()] = true })
	t.Cleanup(func() { c.change(func() { delete(c.inside, t.Name()) }) })
}

// measuredAlone calls do while no test of the crowd runs.
func measuredAlone(t *testing.T, do func()) {
	t.Helper()
	c := &everybody
	c.enter(t, "no other test is measured", func() bool { return c.alone == "" }, func() { c.alone = t.Name() })
	defer c.change(func() { c.alone = "" })
	c.enter(t, "the tests that run beside others have ended", func() bool { return len(c.inside) == 0 }, func() {})
	do()
}

// enter waits until isSo returns true, and calls do. It holds mu during either call.
func (c *crowd) enter(t *testing.T, what string, isSo func() bool, do func()) {
	t.Helper()
	giveUp := time.After(time.Duration(rounds(4, 20)) * time.Minute)
	for {
		entered, changed, state := c.try(isSo, do)
		if entered {
			return
		}
		select {
		case <-changed:
		case <-giveUp:
			t.Fatalf("after minutes still not: %s; %s", what, state)
		}
	}
}

func (c *crowd) try(isSo func() bool, do func()) (entered bool, changed <-chan struct{}, state string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	state = fmt.Sprintf("running in the crowd: %q; measured or waiting for that: %q", slices.Sorted(maps.Keys(c.inside)), c.alone)
	changed = c.changed
	if entered = isSo(); entered {
		c.changeLocked(do)
	}
	return entered, changed, state
}

func (c *crowd) change(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changeLocked(do)
}

// changeLocked calls do and wakes the waiting tests. The caller holds mu.
func (c *crowd) changeLocked(do func()) {
	do()
	close(c.changed)
	c.changed = make(chan struct{})
}

// No test that calls together has subtests that run in parallel.
func TestTogetherWithoutParallelSubtests(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	set, tests := token.NewFileSet(), 0
	for _, file := range files {
		parsed, err := parser.ParseFile(set, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, declared := range parsed.Decls {
			test, isFunc := declared.(*ast.FuncDecl)
			if !isFunc || !callsTogether(test.Body.List) {
				continue
			}
			tests++
			ast.Inspect(test.Body, func(n ast.Node) bool {
				if inner, is := n.(*ast.FuncLit); is && (callsTogether(inner.Body.List) || callsParallel(inner.Body.List)) {
					t.Errorf("%s: a subtest of %s runs in parallel", set.Position(inner.Pos()), test.Name.Name)
				}
				return true
			})
		}
	}
	if tests < 20 {
		t.Errorf("only %d tests call together: are they still found?", tests)
	}
}

func callsTogether(body []ast.Stmt) bool {
	return slices.ContainsFunc(body, func(s ast.Stmt) bool {
		name, is := called(s).(*ast.Ident)
		return is && name.Name == "together"
	})
}

func callsParallel(body []ast.Stmt) bool {
	return slices.ContainsFunc(body, func(s ast.Stmt) bool {
		method, is := called(s).(*ast.SelectorExpr)
		return is && method.Sel.Name == "Parallel"
	})
}

// called returns what a statement calls, if it is only a call; otherwise nil.
func called(s ast.Stmt) ast.Expr {
	if statement, is := s.(*ast.ExprStmt); is {
		if call, is := statement.X.(*ast.CallExpr); is {
			return call.Fun
		}
	}
	return nil
}
