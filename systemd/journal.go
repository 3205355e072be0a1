package systemd

import "github.com/coreos/go-systemd/v22/journal"

// StderrIsJournal tells whether stderr is a stream of the journal, which reads the
// priority of a line from its beginning. A JOURNAL_STREAM that is none is nobody's.
func StderrIsJournal() bool {
	is, err := journal.StderrIsJournalStream()
	return is && err == nil
}
