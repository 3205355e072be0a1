// A slow disk: an LD_PRELOAD shim in which fsync and fdatasync take longer by a number of microseconds,
// a native int64 at the start of the file that SLOW_FILE names. The number may change at any time.
//
//	cc -shared -fPIC -O2 -o slow.so slow-disk.c -ldl
//	SLOW_FILE=/some/file LD_PRELOAD=./slow.so redis-server … --appendfsync always
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int sync_slowly(const char *function, int synced) {
	int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, function);
	const char *path = getenv("SLOW_FILE");
	int64_t micros = 0;
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0 || pread(fd, &micros, sizeof micros, 0) != sizeof micros)
		abort(); // otherwise a test would have a fast disk
	close(fd);
	struct timespec left = {micros / 1000000, micros % 1000000 * 1000};
	while (nanosleep(&left, &left))
		;
	return real(synced);
}

int fsync(int fd) { return sync_slowly("fsync", fd); }

int fdatasync(int fd) { return sync_slowly("fdatasync", fd); }
