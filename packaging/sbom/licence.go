package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// licence is a file with the conditions of distribution, or a file that has to be distributed too
// (NOTICE, PATENTS).
type licence struct {
	file string   // path within the module
	text string   // its lines end with LF
	ids  []string // SPDX identifiers; none if it is not a licence by itself
}

var (
	licenceFile = regexp.MustCompile(`(?i)^((un)?licen[cs]e|copying|copyright)([.-]\w+)*$`)
	noticeFile  = regexp.MustCompile(`(?i)^(notice|patents)([.-]\w+)*$`)
	blanks      = regexp.MustCompile(`\s+`)
)

// known lists licences with words that only they have. A blank matches any white space.
var known = []struct {
	id    string
	words []string
}{
	{"Apache-2.0", []string{"Apache License", "ersion 2.0", "http://www.apache.org/licenses/"}},
	{"BSD-3-Clause", []string{"Redistribution and use in source and binary forms, with or without modification, are permitted", "Neither the name"}},
	{"BSL-1.0", []string{"Boost Software License - Version 1.0"}},
	{"MIT", []string{"Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files"}},
	{"MPL-2.0", []string{"Mozilla Public License", "ersion 2.0"}},
	{"Unicode-DFS-2016", []string{"any person obtaining a copy of the Unicode data files and any associated documentation"}},
	{"Unlicense", []string{"This is free and unencumbered software released into the public domain."}},
}

// licencesIn returns the licences in directories of the module at top, which must have one itself.
func licencesIn(top string, folders []string) ([]licence, error) {
	var all []licence
	for _, folder := range folders {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			name := entry.Name()
			if filepath.Ext(name) == ".go" || !licenceFile.MatchString(name) && !noticeFile.MatchString(name) {
				continue
			}
			file, err := filepath.Rel(top, filepath.Join(folder, name))
			if err != nil {
				return nil, err
			}
			l, err := readLicence(top, file)
			if err != nil {
				return nil, err
			}
			all = append(all, l)
		}
	}
	if !slices.ContainsFunc(all, func(l licence) bool { return len(l.ids) > 0 && filepath.Base(l.file) == l.file }) {
		return nil, fmt.Errorf("there is no licence in %s: what may not be passed on must not be built in", top)
	}
	return merge(nil, all), nil
}

func readLicence(top, file string) (licence, error) {
	content, err := os.ReadFile(filepath.Join(top, file))
	if err != nil {
		return licence{}, err
	}
	text := strings.TrimSpace(string(bytes.ReplaceAll(content, []byte("\r"), nil))) + "\n"
	l := licence{file: file, text: text}
	if noticeFile.MatchString(filepath.Base(file)) {
		return l, nil
	}
	if l.ids = identify(text); l.ids == nil {
		return licence{}, fmt.Errorf("%s is no licence that is known here: read it, and if redlockd may be passed on with it, add it to packaging/sbom/licence.go",
			filepath.Join(top, file))
	}
	return l, nil
}

// identify returns the licences that a text is, or refers to; none if it is unknown.
func identify(text string) (ids []string) {
	text = blanks.ReplaceAllString(text, " ")
	for _, k := range known {
		if !slices.ContainsFunc(k.words, func(words string) bool { return !strings.Contains(text, words) }) {
			ids = append(ids, k.id)
		}
	}
	return ids
}

// merge returns the licences of both, each once, by file.
func merge(a, b []licence) []licence {
	all := slices.SortedFunc(slices.Values(slices.Concat(a, b)), func(a, b licence) int { return strings.Compare(a.file, b.file) })
	return slices.CompactFunc(all, func(a, b licence) bool { return a.file == b.file })
}

// expression returns the licences of a module as an SPDX expression: all of them apply.
func (m *module) expression() string { return strings.Join(m.ids(), " AND ") }

func (m *module) ids() []string {
	var ids []string
	for _, l := range m.licences {
		ids = append(ids, l.ids...)
	}
	return slices.Compact(slices.Sorted(slices.Values(ids)))
}
