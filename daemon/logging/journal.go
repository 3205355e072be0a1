package logging

import (
	"bytes"
	"slices"

	"github.com/hashicorp/go-hclog"
)

// journalLine is less than what the journal takes for one line (LineMax=): the rest of a
// longer one would have no priority, or what it happens to begin with.
const journalLine = 32 << 10

// JournalLines are the lines of an entry as systemd's journal reads them from a stream:
// each begins with its priority (sd-daemon(3)). So what an entry has in it, whoever
// wrote that, is neither lost nor made more or less urgent where it has several lines.
func JournalLines(level hclog.Level, entry []byte) []byte {
	priority := journalPriority(level)
	var lines []byte
	for line := range bytes.FieldsFuncSeq(entry, endsJournalLine) {
		for part := range slices.Chunk(line, journalLine) {
			lines = append(append(append(lines, priority...), part...), '\n')
		}
	}
	return lines
}

// endsJournalLine: a NUL does, too.
func endsJournalLine(r rune) bool { return r == '\n' || r == 0 }

// journalPriority is that of syslog(3).
func journalPriority(level hclog.Level) string {
	switch level {
	case hclog.Error:
		return "<3>"
	case hclog.Warn:
		return "<4>"
	case hclog.Debug, hclog.Trace:
		return "<7>"
	}
	return "<6>"
}
