package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	if len(args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: sbom VERSION DATE DIR PROGRAM...")
		return 64
	}
	if err := write(args[0], args[1], args[2], args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		return 1
	}
	return 0
}

// write writes both lists into dir. date has the form of RFC 3339.
func write(version, date, dir string, paths []string) error {
	if _, err := time.Parse(time.RFC3339, date); err != nil {
		return fmt.Errorf("DATE: %w", err)
	}
	var programs []*program
	for _, path := range paths {
		p, err := readProgram(path)
		if err != nil {
			return err
		}
		programs = append(programs, p)
	}
	modules, err := union(programs)
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		"THIRD-PARTY": thirdParty(version, modules, false), "THIRD-PARTY.debian": thirdParty(version, modules, true),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	list, err := cycloneDX(version, date, programs, modules)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "redlockd.cdx.json"), list, 0o644)
}
