package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	if len(args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: clients VERSION DIR")
		return 64
	}
	if err := write(os.DirFS("."), args[0], args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "clients:", err)
		return 1
	}
	return 0
}

// write writes all packages into dir, which it makes if it does not exist.
func write(tree fs.FS, version, dir string) error {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	p := &packer{tree: tree, version: version, date: time.Unix(seconds, 0).UTC()}
	if err := p.checkVersions(); err != nil {
		return err
	}
	packages := map[string][]byte{
		"redlockd-" + version + "-py3-none-any.whl": p.wheel(),
		"redlockd-" + version + ".tar.gz":           p.sdist(),
		"redlockd-" + version + ".tgz":              p.npm(),
		"redlockd-" + version + ".gem":              p.gem(),
		"redlockd-php-" + version + ".zip":          p.composer(),
	}
	if err := errors.Join(p.err, os.MkdirAll(dir, 0o755)); err != nil {
		return err
	}
	for name, content := range packages {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// checkVersions reports every client that has another version.
func (p *packer) checkVersions() error {
	var all []error
	for _, client := range []struct{ file, form string }{
		{pyproject, `(?m)^version = "(.*)"$`},
		{"client/node/package.json", `"version": "(.*?)"`},
		{"client/ruby/lib/redlockd/version.rb", `VERSION = "(.*)"`},
		{"client/php/composer.json", `"version": "(.*?)"`},
	} {
		if found := p.value(client.file, client.form); found != p.version {
			all = append(all, fmt.Errorf("%s has version %q, wanted %q: write it there, and commit", client.file, found, p.version))
		}
	}
	return errors.Join(append(all, p.err)...)
}

// npm returns what npm pack writes, and the licence.
func (p *packer) npm() []byte {
	var described struct{ Files []string }
	if err := json.Unmarshal(p.read("client/node/package.json"), &described); err != nil {
		p.note(fmt.Errorf("client/node/package.json: %w", err))
	}
	return p.gzip(p.tar("package", p.named("client/node", append(described.Files, "package.json", "README.md")...)))
}

// composer returns an archive for a repository of the type artifact.
func (p *packer) composer() []byte {
	return p.zip(append(p.named("client/php", "composer.json", "README.md"), p.below("client/php", "src", ".php")...))
}
