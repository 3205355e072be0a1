// A clock that can be stepped: an LD_PRELOAD shim under which a program's wall
// clock is the real one plus an offset, in nanoseconds, that is read each time
// from the file that SKEW_FILE names (8 bytes, a native int64). The other clocks
// are left alone.
//
//	cc -shared -fPIC -O2 -o skew.so clock-skew.c
//	SKEW_FILE=offset LD_PRELOAD=./skew.so redis-server …
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t none;
static volatile int64_t *offset = &none; // the file, mapped

__attribute__((constructor)) static void map_offset(void) {
	const char *path = getenv("SKEW_FILE");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	void *mapped = mmap(0, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
	if (mapped != MAP_FAILED)
		offset = mapped;
	close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *t) {
	int failed = syscall(SYS_clock_gettime, clock, t);
	if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
		int64_t ns = t->tv_sec * INT64_C(1000000000) + t->tv_nsec + *offset;
		t->tv_sec = ns / 1000000000;
		t->tv_nsec = ns % 1000000000;
	}
	return failed;
}

int gettimeofday(struct timeval *restrict v, void *restrict zone) {
	struct timespec t;
	(void)zone;
	clock_gettime(CLOCK_REALTIME, &t);
	v->tv_sec = t.tv_sec;
	v->tv_usec = t.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *where) {
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	if (where)
		*where = t.tv_sec;
	return t.tv_sec;
}
