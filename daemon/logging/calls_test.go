package logging

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// levels are the methods of an hclog.Logger that write a line, with the index of the message.
var levels = map[string]int{"Trace": 0, "Debug": 0, "Info": 0, "Warn": 0, "Error": 0, "Log": 1, "With": -1}

var (
	keyForm = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	isLog   = regexp.MustCompile(`(?i)(^|\.)log$`)
)

// A log message is a constant, and keys are lower_snake_case, so that programs can find both. The
// test checks every call of a logger in the tree.
func TestLogCalls(t *testing.T) {
	root, calls := filepath.Join("..", ".."), 0
	for _, dir := range []string{"daemon", "redlock", "cmd/redlockd"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(node ast.Node) bool {
				if call, ok := node.(*ast.CallExpr); ok {
					if faults, isCall := callFaults(call); isCall {
						calls++
						for _, fault := range faults {
							t.Errorf("%s: %s", files.Position(call.Pos()), fault)
						}
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if calls < 40 {
		t.Errorf("found only %d calls: does callFaults recognize them?", calls)
	}
}

// callFaults returns the faults of a call of a logger: log.Warn("message", "key", value…), or of a
// variable named log that is such a method.
func callFaults(call *ast.CallExpr) (faults []string, isCall bool) {
	message := 0
	switch fun := call.Fun.(type) {
	case *ast.SelectorExpr:
		at, known := levels[fun.Sel.Name]
		if !known || !isLog.MatchString(text(fun.X)) {
			return nil, false
		}
		message = at
	case *ast.Ident:
		if fun.Name != "log" {
			return nil, false
		}
	default:
		return nil, false
	}
	if message >= 0 && message < len(call.Args) {
		if _, constant := literal(call.Args[message]); !constant {
			faults = append(faults, "the message is not a constant")
		}
	}
	for i := message + 1; i < len(call.Args); i += 2 {
		if i == len(call.Args)-1 && call.Ellipsis.IsValid() {
			break // a slice of keys and values, such as LeaseLog.facts returns
		}
		if key, constant := literal(call.Args[i]); !constant || !keyForm.MatchString(key) {
			faults = append(faults, "the key "+strconv.Quote(key)+" is not lower_snake_case")
		}
	}
	return faults, true
}

// text returns a chain of names, such as a.b.c.
func text(expr ast.Expr) string {
	switch expr := expr.(type) {
	case *ast.Ident:
		return expr.Name
	case *ast.SelectorExpr:
		return text(expr.X) + "." + expr.Sel.Name
	}
	return ""
}

// literal returns the value of a string literal, or of a sum of literals.
func literal(expr ast.Expr) (value string, ok bool) {
	switch expr := expr.(type) {
	case *ast.BasicLit:
		value, err := strconv.Unquote(expr.Value)
		return value, err == nil
	case *ast.BinaryExpr:
		x, okX := literal(expr.X)
		y, okY := literal(expr.Y)
		return x + y, okX && okY
	}
	return "", false
}

// callFaults finds each kind of fault.
func TestCallFaults(t *testing.T) {
	for source, want := range map[string]int{
		`d.log.Warn("a node is down", "node", n)`:             0,
		`log("a"+" b", "next_try", n)`:                        0,
		`d.log.Log(level, "denied", "user", u)`:               0,
		`l.log.Info("granted", l.facts(x)...)`:                0,
		`d.log.With("after", 3)`:                              0,
		`d.log.Warn(text)`:                                    1,
		`d.log.Warn("a " + text, "node", n)`:                  1,
		`d.Log.Error("failed", "what to do", n)`:              1,
		`d.log.Error("failed", "holder's pid", n, "Next", 1)`: 2,
	} {
		expr, err := parser.ParseExpr(source)
		if err != nil {
			t.Fatal(err)
		}
		if faults, ok := callFaults(expr.(*ast.CallExpr)); len(faults) != want || !ok {
			t.Errorf("%s: got %q, %t; want %d faults", source, faults, ok, want)
		}
	}
}
