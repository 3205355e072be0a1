package systemd

import "github.com/coreos/go-systemd/v22/journal"

// StderrIsJournal reports whether stderr is a stream of the journal, which reads the priority of a
// line from its beginning. If JOURNAL_STREAM is invalid, it returns false.
func StderrIsJournal() bool {
	is, err := journal.StderrIsJournalStream()
	return is && err == nil
}
