package main

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/redlockd/redlockd/daemon/session"
)

//go:embed *.5 *.7 *.8
var pages embed.FS

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: man VERSION DATE DIR")
		os.Exit(64)
	}
	if err := write(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

// write writes all pages into a directory, which it makes if it does not exist.
func write(version, date, dir string) error {
	entries, err := pages.ReadDir(".")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	fill := strings.NewReplacer("@VERSION@", escape(version), "@DATE@", escape(date), "@VERBS@", strings.TrimSuffix(verbs(), "\n"))
	for _, entry := range entries {
		text, err := pages.ReadFile(entry.Name())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, entry.Name()), []byte(fill.Replace(string(text))), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// verbs returns HELP as items of a list of mdoc(7).
func verbs() string {
	var list strings.Builder
	for _, verb := range session.Help() {
		fmt.Fprintf(&list, ".It %s\n", escape(verb.Usage))
		for i, does := range verb.Does {
			if i > 0 {
				list.WriteString(".Pp\n")
			}
			list.WriteString(escape(does) + "\n")
		}
	}
	return list.String()
}

// escape escapes the characters that are special in mdoc(7).
func escape(text string) string {
	return `\&` + strings.NewReplacer(`\`, `\e`, `"`, `\(dq`, "'", `\(aq`, "|", `\(ba`).Replace(text)
}
