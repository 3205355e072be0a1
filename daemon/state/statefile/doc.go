// Package statefile keeps what must outlast the process: records, appended to files in
// a directory of the running system (/run), of which a state is made again after a
// restart, a crash or a kill -9.
//
// A record is there for the next process from the moment Append returns: it is
// written into a mapping that is shared with the file, which costs no system call.
// It does not outlast the machine, and need not: leases do not either.
//
// The files are PATH.1, PATH.2 and so on. Records go into the last one until that
// is full; what was true by the end of the others is written anew now and then, in
// the background, as one file that takes their place. The next file is made before
// the last one is full. Each record has a checksum, and its length is written last:
// what was begun in the moment of a kill is not there. Where no file can be written
// (a full disk) the old ones are removed, as what they say would be wrong soon, and
// the state is kept in memory until files can be written again. All files stay mapped: so
// what they say is known where none can be opened. Where somebody removes files, new ones
// are begun; but where that is noticed only when some are made one, or where he cuts them
// short, nothing is noted any more. A living process has the last file locked (see InUse),
// and notes nothing more where it finds another one's there.
package statefile
