// Package statefile keeps records that must outlast the process in files of a directory that
// a reboot empties (/run). After a restart, a crash or a kill -9, Open makes a State of them.
//
// A record is there for the next process when Append returns: it is written into a mapping
// that is shared with the file, which costs no system call. It does not outlast the machine,
// and need not: neither do leases.
//
// The files are PATH.1, PATH.2 and so on. Records go into the last one, the active file.
// When it is full it is sealed, and a goroutine merges the sealed files into one. A record
// has a checksum, and its length is written last: a record that a kill interrupts does not
// count. A living process has the active file locked (see InUse).
//
// When no file can be written (no space), the files are removed, because they would soon be
// wrong, and the state is kept in memory until files can be written again. When somebody
// removes files, new ones are begun. When somebody cuts one short, or removes some while
// they are merged, nothing is written from then on.
//
// Package state calls it. It knows nothing of what the records mean.
package statefile
