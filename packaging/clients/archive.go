package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// packer reads the tree, and writes archives to memory. It keeps the first error.
type packer struct {
	tree    fs.FS
	version string
	date    time.Time // of all files in the archives
	err     error
}

// file is a file of an archive. Its name has slashes.
type file struct {
	name string
	text []byte
}

func (p *packer) note(err error) {
	if p.err == nil {
		p.err = err
	}
}

// read returns the content of a file of the tree.
func (p *packer) read(name string) []byte {
	text, err := fs.ReadFile(p.tree, name)
	p.note(err)
	return text
}

// value returns what the group of a regular expression matches in a file of the tree.
func (p *packer) value(name, form string) string {
	found := regexp.MustCompile(form).FindSubmatch(p.read(name))
	if found == nil {
		p.note(fmt.Errorf("%s lacks %s", name, form))
		return ""
	}
	return string(found[1])
}

// named returns files of a folder, and the licence.
func (p *packer) named(top string, names ...string) []file {
	all := []file{{"LICENSE", p.read("LICENSE")}}
	for _, name := range names {
		all = append(all, file{name, p.read(top + "/" + name)})
	}
	return all
}

// below returns the files below top/folder whose names end so, by their names below top. Other files
// there, such as those that a build leaves, are not packed.
func (p *packer) below(top, folder string, endings ...string) (all []file) {
	p.note(fs.WalkDir(p.tree, path.Join(top, folder), func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && slices.ContainsFunc(endings, func(ending string) bool { return strings.HasSuffix(name, ending) }) {
			all = append(all, file{strings.TrimPrefix(name, top+"/"), p.read(name)})
		}
		return err
	}))
	return all
}

// tar returns an archive with all files in one folder, or in none.
func (p *packer) tar(folder string, all []file) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range inOrder(all) {
		p.note(w.WriteHeader(&tar.Header{Name: path.Join(folder, f.name), Mode: 0o644, Size: int64(len(f.text)), ModTime: p.date, Format: tar.FormatUSTAR}))
		_, err := w.Write(f.text)
		p.note(err)
	}
	p.note(w.Close())
	return out.Bytes()
}

func (p *packer) gzip(content []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(content)
	p.note(err)
	p.note(w.Close())
	return out.Bytes()
}

func (p *packer) zip(all []file) []byte {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, f := range inOrder(all) {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: p.date}
		header.SetMode(0o644)
		into, err := w.CreateHeader(header)
		p.note(err)
		if err == nil {
			_, err = into.Write(f.text)
			p.note(err)
		}
	}
	p.note(w.Close())
	return out.Bytes()
}

func inOrder(all []file) []file {
	return slices.SortedFunc(slices.Values(all), func(a, b file) int { return cmp.Compare(a.name, b.name) })
}
