package main

import (
	"debug/buildinfo"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

const (
	mit  = "MIT License\n\nCopyright (c) 2020 A\n\nPermission is hereby granted, free of charge, to any person obtaining a copy\r\nof this software and associated documentation files (the \"Software\"), to …\n"
	bsd  = "Copyright B\n\nRedistribution and use in source and binary forms, with or without\nmodification, are permitted provided …\nNeither the name of B nor …\n"
	note = "This product includes software developed at A.\n"
)

func TestIdentify(t *testing.T) {
	for text, want := range map[string]string{
		mit:              "MIT",
		bsd:              "BSD-3-Clause",
		mit + "\n" + bsd: "BSD-3-Clause MIT",
		"Apache License\n  Version 2.0, January 2004\n http://www.apache.org/licenses/\n":  "Apache-2.0",
		"Mozilla Public License, version 2.0\n1. Definitions … GNU General Public License": "MPL-2.0",
		"GNU GENERAL PUBLIC LICENSE\nVersion 3, 29 June 2007\n":                            "",
		"All rights reserved.\n": "",
		"":                       "",
		"Redistribution and use in source and binary forms, with or without modification, are permitted": "", // a licence with two clauses that is not reviewed
	} {
		if got := strings.Join(identify(text), " "); got != want {
			t.Errorf("%.60q: got %q, want %q", text, got, want)
		}
	}
}

// The licences that count are in the directories of the built packages, and above them.
func TestLicencesIn(t *testing.T) {
	top := tree(t, map[string]string{
		"LICENSE.md": mit, "NOTICE": note, "licence.go": "package x", "in/copied/COPYING": bsd, "in/x.go": "package in", "out/LICENSE": "mine alone",
	})
	got, err := licencesIn(top, upTo(top, filepath.Join(top, "in", "copied")))
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, l := range got {
		files = append(files, l.file)
	}
	if want := []string{"LICENSE.md", "NOTICE", "in/copied/COPYING"}; !slices.Equal(files, want) {
		t.Errorf("got %q, want %q", files, want)
	}
	m := module{path: "example.com/m", version: "v1.2.3", licences: got}
	if got, want := m.expression(), "BSD-3-Clause AND MIT"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	shown := string(thirdParty("1.0.0", []*module{&m}, false))
	for _, want := range []string{"example.com/m v1.2.3: BSD-3-Clause AND MIT\n", strings.ReplaceAll(mit, "\r", ""), bsd, note} {
		if !strings.Contains(shown, want) {
			t.Errorf("THIRD-PARTY lacks %q:\n%s", want, shown)
		}
	}
}

func TestLicencesUnknown(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"there is no licence":      {"x.go": "package x"},
		"there is no licence in":   {"NOTICE": note, "in/LICENSE": mit}, // licence of a part only
		"no licence that is known": {"LICENSE": "Give me a beer."},
		"in/LICENSE is no licence": {"LICENSE": mit, "in/LICENSE": "Give me a beer."},
	} {
		top := tree(t, files)
		folders := []string{top}
		if in := filepath.Join(top, "in"); exists(in) {
			folders = append(folders, in)
		}
		if got, err := licencesIn(top, folders); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v: got %v, %v; want the error that %s", files, got, err, name)
		}
	}
}

// If a program was not built from these sources, there is no list: the licences could be wrong.
func TestOtherProgram(t *testing.T) {
	info, err := buildinfo.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	info.Path, info.Deps = mainModule+"/cmd/redlock", nil
	for want, dep := range map[string]*debug.Module{
		"it lacks golang.org/x/sys v": {Path: "golang.org/x/sys", Version: "v0.0.1", Sum: "h1:"},
		"has no checksum":             {Path: "golang.org/x/sys", Version: "v0.49.0"},
		"is replaced by":              {Path: "golang.org/x/sys", Version: "v0.49.0", Sum: "h1:", Replace: &debug.Module{Path: "../sys"}},
	} {
		info.Deps = []*debug.Module{dep}
		if got, err := modulesOf(info); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, %v; want the error %q", dep, got, err, want)
		}
	}
	info.Deps, info.GoVersion = nil, "go1.2"
	info.Path = mainModule + "/packaging/sbom"
	if got, err := modulesOf(info); err == nil || !strings.Contains(err.Error(), "built with go1.2") {
		t.Errorf("got %v, %v; want the error that another Go built it", got, err)
	}
	if _, err := readProgram("main.go"); err == nil {
		t.Error("a file that is no program was taken for one")
	}
}

func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	top := t.TempDir()
	for name, text := range files {
		path := filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return top
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }
