// A disk that loses power: an LD_PRELOAD shim that records, for each file that a program syncs, how
// many bytes of it are on the disk: the size before the last fsync or fdatasync that succeeded. The
// record is a file in the directory that SYNCED_DIR names, with the file's inode number as its name
// and 8 bytes, a native int64. Who cuts each file to that size afterwards has what a power loss may
// leave.
//
//	cc -shared -fPIC -O2 -o synced.so power-loss.c -ldl
//	SYNCED_DIR=/some/directory LD_PRELOAD=./synced.so redis-server …
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void record(const struct stat *synced) {
	char path[4096];
	const char *dir = getenv("SYNCED_DIR");
	if (!dir)
		return;
	snprintf(path, sizeof path, "%s/%llu", dir, (unsigned long long)synced->st_ino);
	int64_t size = synced->st_size;
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || pwrite(fd, &size, sizeof size, 0) != sizeof size)
		abort(); // otherwise a test would lose more than a disk does
	close(fd);
}

static int sync_with(const char *function, int fd) {
	struct stat before;
	int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, function);
	int regular = !fstat(fd, &before) && S_ISREG(before.st_mode);
	int failed = real(fd);
	if (!failed && regular)
		record(&before);
	return failed;
}

int fsync(int fd) { return sync_with("fsync", fd); }

int fdatasync(int fd) { return sync_with("fdatasync", fd); }
