package main

import (
	"bytes"
	"fmt"
	"strings"
)

// thirdParty returns the list for people: the modules, their licences, and each licence text once.
// For Debian it only refers to the Apache License: every Debian system has it, and packages must
// not contain it.
func thirdParty(version string, modules []*module, debian bool) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "The programs of redlockd %s have the following built in, which others have written.\n"+
		"The sources of MODULE are at https://MODULE, and those of exactly this version\n"+
		"in the Go module proxy, as MODULE@VERSION; those of std, which is Go's own\nlibrary, at https://go.dev/dl. The texts of the licences follow.\n\n", version)
	for _, m := range modules {
		fmt.Fprintf(&b, "%s %s: %s\n", m.path, m.version, m.expression())
	}
	for _, t := range texts(modules) {
		if debian && strings.Contains(t.text, "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION") {
			t.text = "/usr/share/common-licenses/Apache-2.0\n"
		}
		fmt.Fprintf(&b, "\n%s\n%s\n\n%s", strings.Repeat("-", 79), strings.Join(t.of, "\n"), t.text)
	}
	return b.Bytes()
}

// text is a licence text that one or more files have.
type text struct {
	of   []string // modules and files
	text string
}

// texts merges texts that differ only in white space.
func texts(modules []*module) (all []*text) {
	same := map[string]*text{}
	for _, m := range modules {
		for _, l := range m.licences {
			words := blanks.ReplaceAllString(l.text, " ")
			t := same[words]
			if t == nil {
				t = &text{text: l.text}
				same[words] = t
				all = append(all, t)
			}
			t.of = append(t.of, m.path+" "+m.version+": "+l.file)
		}
	}
	return all
}
