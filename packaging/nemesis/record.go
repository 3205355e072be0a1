package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// formatVersion is the version of the format of a history file.
const formatVersion = 1

// A recordLine is one line of a history file, in the order in which the nemesis learned of the
// events. Each line has exactly one of the pointers and Died.
type recordLine struct {
	At     instant         `json:"at"` // when the nemesis learned of it
	Header *recordHeader   `json:"header,omitempty"`
	Client int             `json:"client,omitempty"` // a life of a client process, from 1
	Hold   json.RawMessage `json:"hold,omitempty"`   // of the client: at its grant, and again at its end
	Died   bool            `json:"died,omitempty"`   // the client process was killed at At
	Excuse *excuse         `json:"excuse,omitempty"`
}

// A recordHeader is the first line of a history file.
type recordHeader struct {
	Format  int      `json:"format"`
	Command []string `json:"command"` // the flags of the run
	Server  string   `json:"server"`  // name and version of the nodes
}

// A recorder writes a history file. A nil one writes nothing.
type recorder struct {
	buffer *bufio.Writer
	close  func() error
	err    error // the first one
}

// newRecorder creates a history file, compressed if its name ends in .gz.
func newRecorder(path string) (*recorder, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if !strings.HasSuffix(path, ".gz") {
		return &recorder{buffer: bufio.NewWriter(file), close: file.Close}, nil
	}
	packed := gzip.NewWriter(file)
	return &recorder{buffer: bufio.NewWriter(packed), close: func() error { return errors.Join(packed.Close(), file.Close()) }}, nil
}

func (r *recorder) write(line recordLine) {
	if r == nil || r.err != nil {
		return
	}
	text, err := json.Marshal(line)
	if err == nil {
		_, err = r.buffer.Write(append(text, '\n'))
	}
	r.err = err
}

// finish writes the rest, and returns the first error of all writes.
func (r *recorder) finish() error {
	if r == nil {
		return nil
	}
	return errors.Join(r.err, r.buffer.Flush(), r.close())
}

// mostLine is the longest line of a history file that is read, in bytes.
const mostLine = 1 << 20

// replay reads a history file.
func replay(path string) (*recordHeader, *history, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	var in io.Reader = file
	if strings.HasSuffix(path, ".gz") {
		if in, err = gzip.NewReader(file); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	var header *recordHeader
	h := newHistory()
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, mostLine)
	number := 0
	for lines.Scan() {
		number++
		var line recordLine
		decode := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		decode.DisallowUnknownFields()
		if err = decode.Decode(&line); err == nil {
			if number == 1 {
				if header = line.Header; header == nil || header.Format != formatVersion {
					err = fmt.Errorf("the first line must be a header of format %d", formatVersion)
				}
			} else {
				err = h.apply(line)
			}
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s:%d: %w", path, number, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, nil, fmt.Errorf("%s, after line %d: %w", path, number, err)
	}
	if header == nil {
		return nil, nil, fmt.Errorf("%s: the file is empty", path)
	}
	return header, h, nil
}

// apply takes a line of a history file.
func (h *history) apply(line recordLine) error {
	switch {
	case line.Hold != nil:
		return h.add(line.Client, line.Hold, line.At)
	case line.Died:
		h.clientDied(line.Client, line.At)
	case line.Excuse != nil:
		h.excuse(*line.Excuse)
	default:
		return errors.New(`the line has none of "hold", "died" and "excuse"`)
	}
	return nil
}

// checkFile checks a history file, and prints what it found.
func checkFile(path string, stdout, stderr io.Writer) int {
	header, h, err := replay(path)
	if err != nil {
		fmt.Fprintln(stderr, "nemesis:", err)
		return exitUnavailable
	}
	grants, locks := h.totalGrants(), h.takeIdle(never)
	slices.SortFunc(locks, func(a, b completeHistory) int { return strings.Compare(a.name, b.name) })
	found := checkAll(locks)
	fmt.Fprintf(stdout, "%s, %s: %d grants of %d locks, %d violations\n", strings.Join(header.Command, " "), header.Server, grants, len(locks), len(found))
	for _, one := range found {
		fmt.Fprintln(stdout, one)
	}
	if len(found) > 0 {
		return exitViolation
	}
	return 0
}
