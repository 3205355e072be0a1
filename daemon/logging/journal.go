package logging

import (
	"bytes"
	"slices"

	"github.com/hashicorp/go-hclog"
)

// journalLine is below the longest line that the journal takes (LineMax=). The
// journal would split a longer line, and the second part would have no priority.
const journalLine = 32 << 10

// JournalLines formats an entry as systemd's journal reads it from a stream: each
// line begins with its priority (sd-daemon(3)). So an entry of several lines keeps
// one priority, and no text inside it can change that.
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

// endsJournalLine reports whether the journal ends a line at r.
func endsJournalLine(r rune) bool { return r == '\n' || r == 0 }

// journalPriority returns the priority of syslog(3) for a level.
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
