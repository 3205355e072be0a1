package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// two returns programs that share a module, with different licences of it in each.
func two() []*program {
	a := func(files ...string) *module {
		m := &module{path: "example.com/a", version: "v1.0.0+incompatible", sum: "h1:aa="}
		for _, file := range files {
			m.licences = append(m.licences, licence{file, mit, []string{"MIT"}})
		}
		return m
	}
	library := &module{path: std, version: "go1.26.8", licences: []licence{{"LICENSE", bsd, []string{"BSD-3-Clause"}}}}
	return []*program{
		{name: "redlock", sha256: "00ff", modules: map[string]*module{"example.com/a": a("LICENSE", "sub/LICENSE"), std: library}},
		{name: "redlockd", sha256: "11ff", modules: map[string]*module{"example.com/a": a("LICENSE", "other/LICENSE"), std: library}},
	}
}

// A module in several programs is listed once, with all its licences, unless its content differs.
func TestUnion(t *testing.T) {
	modules, err := union(two())
	if err != nil || len(modules) != 2 || modules[0].path != "example.com/a" || modules[1].path != std {
		t.Fatalf("got %v, %v; want the module and std", modules, err)
	}
	var files []string
	for _, l := range modules[0].licences {
		files = append(files, l.file)
	}
	if want := []string{"LICENSE", "other/LICENSE", "sub/LICENSE"}; !slices.Equal(files, want) {
		t.Errorf("the licences are %q, want %q", files, want)
	}
	for what, change := range map[string]func(*module){
		"another version": func(m *module) { m.version = "v1.0.1" },
		"another sum":     func(m *module) { m.sum = "h1:bb=" },
	} {
		programs := two()
		change(programs[1].modules["example.com/a"])
		if _, err := union(programs); err == nil || !strings.Contains(err.Error(), "example.com/a is ") {
			t.Errorf("%s: got %v, want an error", what, err)
		}
	}
}

// The list names the programs, their modules, and the dependencies of each.
func TestCycloneDX(t *testing.T) {
	programs := two()
	modules, err := union(programs)
	if err != nil {
		t.Fatal(err)
	}
	text, err := cycloneDX("1.2", "2026-01-02T03:04:05Z", programs, modules)
	if err != nil {
		t.Fatal(err)
	}
	var got bom
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	const whole, a, library = "pkg:golang/github.com/redlockd/redlockd@v1.2", "pkg:golang/example.com/a@v1.0.0%2Bincompatible", "pkg:golang/std@1.26.8"
	if c := got.Metadata.Component; got.Format != "CycloneDX" || got.SpecVersion != "1.6" || c.Ref != whole || c.PURL != whole || c.Version != "1.2" {
		t.Errorf("the list is %s %s of %+v", got.Format, got.SpecVersion, c)
	}
	var found []string
	for _, c := range got.Components {
		words := []string{c.Type, c.Ref, c.Licenses[0].Expression}
		for _, h := range c.Hashes {
			words = append(words, h.Algorithm, h.Content)
		}
		for _, p := range c.Properties {
			words = append(words, p.Name, p.Value)
		}
		found = append(found, strings.Join(words, " "))
	}
	want := []string{
		"file file:redlock Apache-2.0 SHA-256 00ff", "file file:redlockd Apache-2.0 SHA-256 11ff",
		"library " + a + " MIT go.sum h1:aa=", "library " + library + " BSD-3-Clause",
	}
	if !slices.Equal(found, want) {
		t.Errorf("the components are %q, want %q", found, want)
	}
	depends := map[string][]string{whole: {"file:redlock", "file:redlockd"}, "file:redlock": {a, library}, "file:redlockd": {a, library}}
	if len(got.Dependencies) != len(depends) {
		t.Errorf("the dependencies are %+v, want those of %d", got.Dependencies, len(depends))
	}
	for _, d := range got.Dependencies {
		if !slices.Equal(d.DependsOn, depends[d.Ref]) {
			t.Errorf("%s depends on %q, want %q", d.Ref, d.DependsOn, depends[d.Ref])
		}
	}
}

// Each text is listed once, with all modules that it belongs to. Debian's packages do not repeat
// the Apache License.
func TestThirdParty(t *testing.T) {
	const apache = "Apache License\nTERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION\n"
	modules := []*module{
		{path: "example.com/a", version: "v1", licences: []licence{{"LICENSE", mit, []string{"MIT"}}, {"NOTICE", note, nil}}},
		{path: "example.com/b", version: "v2", licences: []licence{{"COPYING", strings.ReplaceAll(mit, "\r\n", "\n"), []string{"MIT"}}, {"LICENSE", apache, []string{"Apache-2.0"}}}},
	}
	for debian, terms := range map[bool]int{false: 1, true: 0} {
		got := string(thirdParty("1.2", modules, debian))
		for text, want := range map[string]int{
			"The programs of redlockd 1.2 have": 1, "example.com/a v1: MIT\n": 1, "example.com/b v2: Apache-2.0 AND MIT\n": 1,
			"example.com/a v1: LICENSE\nexample.com/b v2: COPYING\n": 1, "Permission is hereby granted": 1, "software developed at A": 1,
			"TERMS AND CONDITIONS": terms, "/usr/share/common-licenses/Apache-2.0\n": 1 - terms,
		} {
			if n := strings.Count(got, text); n != want {
				t.Errorf("Debian %v: %q is there %d times, want %d:\n%s", debian, text, n, want, got)
			}
		}
	}
}
