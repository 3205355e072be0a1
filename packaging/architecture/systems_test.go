package architecture

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Everything has correct types on the other systems that the README names. The standard library is read, not
// compiled, so this takes seconds. Tests are checked where they run.
func TestTypesOnOtherSystems(t *testing.T) {
	for _, system := range []struct {
		name, arch string
		patterns   []string
	}{
		{"darwin", "arm64", []string{"./client", "./cmd/..."}},
		{"freebsd", "amd64", []string{"./..."}},
	} {
		t.Run(system.name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap"}, system.patterns...)
			list := exec.Command("go", args...)
			list.Dir = filepath.Join("..", "..")
			list.Env = append(os.Environ(), "GOOS="+system.name, "GOARCH="+system.arch, "CGO_ENABLED=0")
			var stderr bytes.Buffer
			list.Stderr = &stderr
			out, err := list.Output()
			if err != nil {
				t.Fatalf("go list: %v: %s", err, stderr.String())
			}
			checked := map[string]*types.Package{"unsafe": types.Unsafe}
			for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); { // imports come before what imports them
				var p listedPackage
				if err := decoder.Decode(&p); err != nil {
					t.Fatal(err)
				}
				if p.ImportPath != "unsafe" {
					checked[p.ImportPath] = p.check(t, checked, types.SizesFor("gc", system.arch))
				}
			}
		})
	}
}

type listedPackage struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string // the vendored modules of the standard library
}

// check checks the types of a package. It reads the bodies of functions only in this module.
func (p *listedPackage) check(t *testing.T, checked map[string]*types.Package, sizes types.Sizes) *types.Package {
	t.Helper()
	_, isOurs := RelativePath(p.ImportPath)
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	config := types.Config{
		IgnoreFuncBodies: !isOurs,
		Sizes:            sizes,
		Importer:         importMap{checked, p.ImportMap},
		Error: func(err error) {
			if isOurs || !strings.Contains(err.Error(), "imported and not used") { // in a body
				t.Error(err)
			}
		},
	}
	result, _ := config.Check(p.ImportPath, fset, files, nil)
	return result
}

// importMap imports packages that are checked already.
type importMap struct {
	checked map[string]*types.Package
	renamed map[string]string
}

func (m importMap) Import(path string) (*types.Package, error) {
	if to := m.renamed[path]; to != "" {
		path = to
	}
	return m.checked[path], nil
}
