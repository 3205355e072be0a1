// Package statefile keeps records that must outlast the process in files of a directory that
// a reboot empties (/run). After a restart, a crash or a kill -9, Open reads them into a State.
//
// When Append returns, the next process will find the record. Append writes it into a mapping that
// is shared with the file, which costs no system call. Records do not survive a reboot. They need
// not, because leases do not either.
//
// The files are PATH.1, PATH.2 and so on. Records go into the last one, the active file.
// When it is full it is sealed, and a goroutine merges the sealed files into one. A record
// has a checksum, and its length is written last: a record that a kill interrupts does not
// count. A living process has the active file locked (see InUse).
//
// When no file can be written (no space), the files are removed, because they would soon be out of
// date. The state stays in memory until files can be written again. If somebody removes files, new
// ones are begun. If somebody truncates a file, or removes files during a merge, writing stops for
// good.
//
// Package state calls it. It does not know what the records mean.
package statefile
