// Package statefile keeps records that must outlast the process in a file of a directory that
// a reboot empties (/run). After a restart, a crash or a kill -9, Open reads them into a State.
//
// When Append returns, the next process will find the record. Records do not survive a reboot. They
// need not, because leases do not either.
//
// The file is PATH.N. It was filled with zeros before it got its name, so an append needs no space. Append
// writes into a mapping that is shared with the file, which costs no system call. When most of the file is
// used, a goroutine writes the state into PATH.N+1, which replaces it. A record has a checksum, and its
// length is written last: a record that a kill interrupts does not count. A living process has its file
// locked (see InUse).
//
// When the file is full and no other one can be written (no space), the file is removed, because it
// would soon be out of date. The state stays in memory until a file can be written again. If somebody
// removes the file, a new one is begun. If somebody truncates it, writing stops for good.
//
// Package state calls it. It does not know what the records mean.
package statefile
