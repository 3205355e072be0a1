package architecture

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// A Package is one package of the tree, without its tests.
type Package struct {
	Path    string   // import path
	Dir     string   // absolute directory
	Files   []string // names of the files that are built here, without tests
	Imports []string // direct imports
	Deps    []string // all imports, direct and indirect
}

// Load lists the packages that match patterns, as the go command sees them from dir.
func Load(dir string, patterns ...string) (map[string]*Package, error) {
	args := append([]string{"list", "-deps", "-json=ImportPath,Dir,GoFiles,CgoFiles,Imports,Deps"}, patterns...)
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
			ImportPath, Dir                  string
			GoFiles, CgoFiles, Imports, Deps []string
		}
		if err := decoder.Decode(&listed); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("output of go list: %w", err)
		}
		packages[listed.ImportPath] = &Package{
			Path: listed.ImportPath, Dir: listed.Dir, Files: append(listed.GoFiles, listed.CgoFiles...),
			Imports: listed.Imports, Deps: listed.Deps,
		}
	}
}

// RelativePath returns the import path of a package of this module without the module's own path.
func RelativePath(path string) (string, bool) {
	return strings.CutPrefix(path, module+"/")
}

const module = "github.com/redlockd/redlockd"
