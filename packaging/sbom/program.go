package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

// program is an executable file and the modules in it.
type program struct {
	name    string
	sha256  string             // of the file, in hexadecimal
	modules map[string]*module // by path, including std
}

// module is a third-party part of a program.
type module struct {
	path     string
	version  string
	sum      string // as in go.sum; empty for std
	licences []licence
}

// std stands for Go's own library and runtime.
const std = "std"

// readProgram reads a program. It fails if the build information in the file does not match the
// sources here: the licences could be wrong.
func readProgram(path string) (*program, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	hash := sha256.Sum256(content)
	p := &program{name: filepath.Base(path), sha256: hex.EncodeToString(hash[:])}
	if p.modules, err = modulesOf(info); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

func modulesOf(info *debug.BuildInfo) (map[string]*module, error) {
	modules, err := builtIn(info)
	if err != nil {
		return nil, err
	}
	packages, err := linked(info)
	if err != nil {
		return nil, err
	}
	tops, folders := map[string]string{}, map[string][]string{}
	for _, p := range packages {
		if p.Module == nil || p.Module.Main {
			continue
		}
		if m := modules[p.Module.Path]; m == nil || m.version != p.Module.Version {
			return nil, fmt.Errorf("it lacks %s %s, which the sources here have: build it anew", p.Module.Path, p.Module.Version)
		}
		tops[p.Module.Path] = p.Module.Dir
		folders[p.Module.Path] = append(folders[p.Module.Path], upTo(p.Module.Dir, p.Dir)...)
	}
	if tops[std], err = goRoot(info.GoVersion); err != nil {
		return nil, err
	}
	folders[std] = []string{tops[std]}
	for path, m := range modules {
		if tops[path] == "" {
			return nil, fmt.Errorf("it has %s %s, which the sources here lack: build it anew", path, m.version)
		}
		once := slices.Compact(slices.Sorted(slices.Values(folders[path])))
		if m.licences, err = licencesIn(tops[path], once); err != nil {
			return nil, fmt.Errorf("%s %s: %w", path, m.version, err)
		}
	}
	return modules, nil
}

// builtIn returns the modules that the program reports.
func builtIn(info *debug.BuildInfo) (map[string]*module, error) {
	modules := map[string]*module{std: {path: std, version: info.GoVersion}}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			return nil, fmt.Errorf("%s is replaced by %s: what is shipped is made of what go.mod requires", dep.Path, dep.Replace.Path)
		}
		if dep.Sum == "" {
			return nil, fmt.Errorf("%s has no checksum: it did not come from the module cache", dep.Path)
		}
		modules[dep.Path] = &module{path: dep.Path, version: dep.Version, sum: dep.Sum}
	}
	return modules, nil
}

// goPackage is a package in the output of go list.
type goPackage struct {
	Dir    string
	Module *struct {
		Path, Version, Dir string
		Main               bool
	}
}

// linked returns the packages that a build of that program from the sources here contains.
func linked(info *debug.BuildInfo) ([]goPackage, error) {
	list := exec.Command("go", "list", "-deps", "-json=Dir,Module", info.Path)
	list.Env = os.Environ()
	for _, setting := range info.Settings {
		switch setting.Key {
		case "CGO_ENABLED", "GOOS", "GOARCH":
			list.Env = append(list.Env, setting.Key+"="+setting.Value)
		}
	}
	output, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w%s", list, err, stderrOf(err))
	}
	var all []goPackage
	for in := json.NewDecoder(bytes.NewReader(output)); ; {
		var p goPackage
		switch err := in.Decode(&p); err {
		case nil:
			all = append(all, p)
		case io.EOF:
			return all, nil
		default:
			return nil, fmt.Errorf("%s: %w", list, err)
		}
	}
}

// goRoot returns the directory of Go's own licence, for that version.
func goRoot(version string) (string, error) {
	output, err := exec.Command("go", "env", "GOVERSION", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env: %w%s", err, stderrOf(err))
	}
	here, root, _ := strings.Cut(strings.TrimSpace(string(output)), "\n")
	if here != version {
		return "", fmt.Errorf("it was built with %s, and here is %s: build it anew", version, here)
	}
	return root, nil
}

func stderrOf(err error) string {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && len(exit.Stderr) > 0 {
		return ": " + strings.TrimSpace(string(exit.Stderr))
	}
	return ""
}

// upTo returns the directories from folder up to top, including both.
func upTo(top, folder string) []string {
	all := []string{folder}
	for folder != top && len(folder) > len(top) {
		folder = filepath.Dir(folder)
		all = append(all, folder)
	}
	return all
}

// union returns the modules of all programs, in order. A module in several programs has all its
// licences.
func union(programs []*program) ([]*module, error) {
	all := map[string]*module{}
	for _, p := range programs {
		for path, m := range p.modules {
			known := all[path]
			if known == nil {
				known = &module{path: m.path, version: m.version, sum: m.sum}
				all[path] = known
			}
			if known.version != m.version || known.sum != m.sum {
				return nil, fmt.Errorf("%s: %s is %s %s, and elsewhere %s %s", p.name, path, m.version, m.sum, known.version, known.sum)
			}
			known.licences = merge(known.licences, m.licences)
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *module) int { return strings.Compare(a.path, b.path) }), nil
}
