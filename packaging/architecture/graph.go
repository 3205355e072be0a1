package architecture

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A Package is one package of the tree, without its tests.
type Package struct {
	Path    string   // import path
	Dir     string   // absolute directory
	Files   []string // names of the files that are built here, without tests
	Imports []string // direct imports
	Deps    []string // all imports, direct and indirect
	export  string   // file with the compiler's export data
}

// Load lists the packages that match patterns, as the go command sees them from dir. It builds
// packages that are not in Go's cache.
func Load(dir string, patterns ...string) (map[string]*Package, error) {
	args := append([]string{"list", "-race", "-export", "-deps", "-json=ImportPath,Dir,GoFiles,CgoFiles,Imports,Deps,Export"}, patterns...)
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list in %s: %w: %s", dir, err, stderr.String())
	}
	packages := map[string]*Package{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var listed struct {
			ImportPath, Dir, Export          string
			GoFiles, CgoFiles, Imports, Deps []string
		}
		if err := decoder.Decode(&listed); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("output of go list: %w", err)
		}
		packages[listed.ImportPath] = &Package{
			Path: listed.ImportPath, Dir: listed.Dir, Files: append(listed.GoFiles, listed.CgoFiles...),
			Imports: listed.Imports, Deps: listed.Deps, export: listed.Export,
		}
	}
}

// Circles returns the groups of files of p that depend on each other, largest first. A file depends
// on another if it uses an identifier that the other declares: a type, function, method, field,
// variable or constant. A single file is not a circle.
func Circles(p *Package, all map[string]*Package) ([][]string, error) {
	uses, err := fileUses(p, all)
	if err != nil {
		return nil, err
	}
	circles := components(p.Files, uses)
	slices.SortStableFunc(circles, func(a, b []string) int { return len(b) - len(a) })
	return circles, nil
}

// fileUses returns for each file of p the files whose identifiers it uses.
func fileUses(p *Package, all map[string]*Package) (map[string][]string, error) {
	fset := token.NewFileSet()
	var parsed []*ast.File
	for _, name := range p.Files {
		file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, file)
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		imported, ok := all[path]
		if !ok || imported.export == "" {
			return nil, fmt.Errorf("no export data for %s", path)
		}
		return os.Open(imported.export)
	})}
	checked, err := config.Check(p.Path, fset, parsed, &info)
	if err != nil {
		return nil, err
	}
	uses := map[string][]string{}
	for ident, object := range info.Uses {
		if object.Pkg() != checked {
			continue
		}
		from, to := baseName(fset, ident.Pos()), baseName(fset, object.Pos())
		if from != to && !slices.Contains(uses[from], to) {
			uses[from] = append(uses[from], to)
		}
	}
	return uses, nil
}

func baseName(fset *token.FileSet, pos token.Pos) string {
	return filepath.Base(fset.Position(pos).Filename)
}

// components returns the strongly connected components of more than one node
// (Tarjan, "Depth-first search and linear graph algorithms", 1972).
func components(nodes []string, edges map[string][]string) [][]string {
	var (
		found   [][]string
		stack   []string
		index   = map[string]int{} // order of the first visit, from 1
		lowest  = map[string]int{} // smallest reachable index
		onStack = map[string]bool{}
		visit   func(string)
	)
	visit = func(node string) {
		index[node] = len(index) + 1
		lowest[node] = index[node]
		stack = append(stack, node)
		onStack[node] = true
		for _, next := range edges[node] {
			if index[next] == 0 {
				visit(next)
				lowest[node] = min(lowest[node], lowest[next])
			} else if onStack[next] {
				lowest[node] = min(lowest[node], index[next])
			}
		}
		if lowest[node] != index[node] {
			return
		}
		first := slices.Index(stack, node)
		component := slices.Clone(stack[first:])
		stack = stack[:first]
		for _, member := range component {
			onStack[member] = false
		}
		if len(component) > 1 {
			slices.Sort(component)
			found = append(found, component)
		}
	}
	for _, node := range nodes {
		if index[node] == 0 {
			visit(node)
		}
	}
	return found
}

// RelativePath returns the import path of a package of this module without the module's own path.
func RelativePath(path string) (string, bool) {
	return strings.CutPrefix(path, module+"/")
}

const module = "github.com/redlockd/redlockd"
